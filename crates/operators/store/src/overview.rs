//! The state of a coordinator.

use crate::error::StoreError;
use crate::open::Reader;
use crate::read::{rate, time};
use crate::schema::WITH_COUNTRY;
use crate::write::int;
use crate::{PeriodEntry, PeriodProgress};
use coordinator::{Counts, HistoryPolicy};
use onion::Rate;
use rusqlite::Row;
use std::time::Duration;

/// The data of the overview page.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The last recorded progress of the period.
    pub progress: Option<PeriodProgress>,
    /// The period of that progress.
    pub period: Option<PeriodEntry>,
    /// The newest consensus.
    pub consensus: Option<Consensus>,
    /// The newest bandwidth file.
    pub file: Option<File>,
    /// The number of relays with an estimate of the last month.
    pub relays: u64,
    /// The sum of those estimates.
    pub capacity: Rate,
    /// The number of final results within a day: conclusive, lower bound, failed. A measurement that another one of the relay follows in its
    /// period is no final result.
    pub endings: [u64; 3],
    /// The reasons why these were not conclusive, the most frequent first.
    pub causes: Vec<Cause>,
    /// The number of measurements within a day that were interrupted because the coordinator ended.
    pub broken_off: u64,
}

/// A reason, and its frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its name.
    pub name: String,
    /// The component to blame, for failures.
    pub blame: Option<String>,
    /// The frequency.
    pub count: u64,
    /// An example, in words.
    pub example: String,
}

/// A consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consensus {
    /// The start of its validity.
    pub valid_after_unix_s: u64,
    /// When it was read.
    pub seen_unix_s: u64,
    /// Its source.
    pub source: String,
    /// All its relays.
    pub relays: u64,
    /// The number of measured relays.
    pub to_be_measured: u64,
    /// Authorities whose signatures were verified.
    pub signers: Option<u32>,
}

/// A bandwidth file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The time.
    pub created_unix_s: u64,
    /// Its path.
    pub path: String,
    /// The number of relay lines.
    pub lines: u64,
    /// The number of lines that authorities use for their votes.
    pub voted: u64,
}

/// A measurer of the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerRow {
    /// Its index.
    pub place: u64,
    /// Its public key.
    pub key: String,
    /// Its address.
    pub address: String,
    /// Its capacity.
    pub capacity: Rate,
    /// `up` or `down`.
    pub state: String,
    /// Its report, or the error.
    pub detail: String,
    /// The start of that state.
    pub since_unix_s: u64,
    /// The number of times that it was lost in the last week.
    pub losses: u64,
}

/// A summary of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodSummary {
    /// Its start.
    pub period: PeriodEntry,
    /// The number of measurements that began in it.
    pub measurements: u64,
    /// The number of relays that were measured.
    pub relays: u64,
    /// The number of final results that are failures.
    pub failed: u64,
    /// The number of slots in which a measurement began.
    pub slots_used: u64,
}

const DAY_S: u64 = 24 * 3600;

/// A consensus that becomes valid later than this after the present is from a clock that was ahead: authorities publish one at most
/// hours before (dir-spec, section 1.4).
pub(crate) const AHEAD_MAX_S: u64 = DAY_S;

/// The final results of a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Week {
    /// Its first second, a Thursday 00:00 UTC, as Unix weeks begin.
    pub begin_unix_s: u64,
    /// Conclusive ones, lower bounds, and failures.
    pub endings: [u64; 3],
}

impl Reader {
    /// The current state.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn overview(&self, now_unix_s: u64) -> Result<Overview, StoreError> {
        let progress = self.progress()?;
        let period = match &progress {
            Some(progress) => self.period_entry(progress.period_unix_s)?,
            None => None,
        };
        let month = int(now_unix_s.saturating_sub(30 * DAY_S));
        let sum = "SELECT count(*), sum(capacity_byte_s) FROM relay WHERE estimated_unix_s > ?1";
        let sum = self.all(sum, [month], |row| Ok((time(row, 0)?, rate(row, 1)?)))?;
        let (relays, capacity) = sum.first().copied().unwrap_or_default();
        let day = int(now_unix_s.saturating_sub(DAY_S));
        let states = "SELECT state, count(*) FROM measurement WHERE ended_unix_s > ?1 AND is_final
                      GROUP BY state";
        let states = self.all(states, [day], |row| Ok((row.get::<_, i64>(0)?, time(row, 1)?)))?;
        let count =
            |state| states.iter().find(|(other, _)| *other == state).map_or(0, |state| state.1);
        let causes = "SELECT cause, blame, count(*), max(reason) FROM measurement
                      WHERE ended_unix_s > ?1 AND is_final AND cause IS NOT NULL GROUP BY cause, blame ORDER BY 3 DESC, 1";
        let cause = |row: &Row<'_>| {
            let example: Option<String> = row.get(3)?;
            Ok(Cause {
                name: row.get(0)?,
                blame: row.get(1)?,
                count: time(row, 2)?,
                example: example.unwrap_or_default(),
            })
        };
        let broken = "SELECT count(*) FROM measurement WHERE state = 4 AND started_unix_s > ?1";
        let broken = self.all(broken, [day], |row| time(row, 0))?;
        Ok(Overview {
            progress,
            period,
            consensus: self.newest_consensus(now_unix_s)?,
            file: self.files(1)?.into_iter().next(),
            relays,
            capacity: capacity.unwrap_or_default(),
            endings: [1, 2, 3].map(count),
            causes: self.all(causes, [day], cause)?,
            broken_off: broken.first().copied().unwrap_or_default(),
        })
    }

    /// The last recorded progress of the period.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn progress(&self) -> Result<Option<PeriodProgress>, StoreError> {
        let sql =
            "SELECT at_unix_s, period_unix_s, waiting, running, done, without_slot FROM progress";
        let progress = |row: &Row<'_>| {
            let count = |column| -> rusqlite::Result<usize> {
                Ok(usize::try_from(row.get::<_, i64>(column)?).unwrap_or_default())
            };
            let counts = Counts {
                waiting: count(2)?,
                running: count(3)?,
                done: count(4)?,
                without_slot: count(5)?,
            };
            Ok(PeriodProgress { at_unix_s: time(row, 0)?, period_unix_s: time(row, 1)?, counts })
        };
        Ok(self.all(sql, [], progress)?.into_iter().next())
    }

    fn period_entry(&self, begin_unix_s: u64) -> Result<Option<PeriodEntry>, StoreError> {
        let sql = "SELECT begin_unix_s, length_s, slot_s, seed FROM period WHERE begin_unix_s = ?1";
        Ok(self.all(sql, [int(begin_unix_s)], period)?.into_iter().next())
    }

    /// The newest consensus, without those from a clock that was more than a day ahead.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn newest_consensus(&self, now_unix_s: u64) -> Result<Option<Consensus>, StoreError> {
        let sql = "SELECT valid_after_unix_s, seen_unix_s, source, relays, to_be_measured, signers FROM consensus
                   WHERE valid_after_unix_s <= ?1 ORDER BY valid_after_unix_s DESC LIMIT 1";
        let found = self.all(sql, [int(now_unix_s + AHEAD_MAX_S)], |row| {
            Ok(Consensus {
                valid_after_unix_s: time(row, 0)?,
                seen_unix_s: time(row, 1)?,
                source: row.get(2)?,
                relays: time(row, 3)?,
                to_be_measured: time(row, 4)?,
                signers: row.get(5)?,
            })
        })?;
        Ok(found.into_iter().next())
    }

    /// The newest bandwidth files.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn files(&self, most: usize) -> Result<Vec<File>, StoreError> {
        let sql = "SELECT created_unix_s, path, lines, voted FROM bandwidth_file
                   ORDER BY created_unix_s DESC LIMIT ?1";
        self.all(sql, [int(most as u64)], |row| {
            Ok(File {
                created_unix_s: time(row, 0)?,
                path: row.get(1)?,
                lines: time(row, 2)?,
                voted: time(row, 3)?,
            })
        })
    }

    /// The country of the coordinator, which is the place of the estimates: by the newest bandwidth file. `None` if its operator has not
    /// set it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn scanner_country(&self) -> Result<Option<String>, StoreError> {
        if !self.has(WITH_COUNTRY)? {
            return Ok(None);
        }
        let sql = "SELECT scanner_country FROM bandwidth_file ORDER BY created_unix_s DESC LIMIT 1";
        Ok(self.all(sql, [], |row| row.get(0))?.into_iter().next().flatten())
    }

    /// The team.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measurers(&self, now_unix_s: u64) -> Result<Vec<MeasurerRow>, StoreError> {
        let sql = "SELECT place, key, address, capacity_byte_s, state, detail, since_unix_s,
                   (SELECT count(*) FROM measurer_event e
                    WHERE e.key = m.key AND e.state = 'down' AND e.at_unix_s > ?1)
                   FROM measurer m ORDER BY place";
        self.all(sql, [int(now_unix_s.saturating_sub(7 * DAY_S))], |row| {
            Ok(MeasurerRow {
                place: time(row, 0)?,
                key: row.get(1)?,
                address: row.get(2)?,
                capacity: rate(row, 3)?.unwrap_or_default(),
                state: row.get(4)?,
                detail: row.get(5)?,
                since_unix_s: time(row, 6)?,
                losses: time(row, 7)?,
            })
        })
    }

    /// The newest periods.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn periods(&self, most: usize) -> Result<Vec<PeriodSummary>, StoreError> {
        let sql = "SELECT p.begin_unix_s, p.length_s, p.slot_s, p.seed, count(m.id), count(DISTINCT m.relay),
                   count(CASE WHEN m.state = 3 AND m.is_final THEN 1 END), count(DISTINCT m.slot) FROM
                   (SELECT * FROM period ORDER BY begin_unix_s DESC LIMIT ?1) p
                   LEFT JOIN measurement m ON m.period_unix_s = p.begin_unix_s
                   GROUP BY p.begin_unix_s ORDER BY p.begin_unix_s DESC";
        self.all(sql, [int(most as u64)], |row| {
            Ok(PeriodSummary {
                period: period(row)?,
                measurements: time(row, 4)?,
                relays: time(row, 5)?,
                failed: time(row, 6)?,
                slots_used: time(row, 7)?,
            })
        })
    }

    /// Verdicts by week, the newest first; weeks without any are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn weeks(&self, now_unix_s: u64, most: u64) -> Result<Vec<Week>, StoreError> {
        const WEEK_S: u64 = 7 * DAY_S;
        let from = (now_unix_s / WEEK_S).saturating_sub(most.saturating_sub(1)) * WEEK_S;
        let count = |state: u8| format!("count(CASE state WHEN {state} THEN 1 END)");
        // The index of ends and states has all of it.
        let sql = format!(
            "SELECT ended_unix_s / {WEEK_S}, {}, {}, {} FROM measurement
             WHERE ended_unix_s >= ?1 AND is_final GROUP BY 1 ORDER BY 1 DESC",
            count(1),
            count(2),
            count(3)
        );
        self.all(&sql, [int(from)], |row| {
            let endings = [time(row, 1)?, time(row, 2)?, time(row, 3)?];
            Ok(Week { begin_unix_s: time(row, 0)? * WEEK_S, endings })
        })
    }

    /// The policy for estimates, by the length of the newest period.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn history_policy(&self) -> Result<HistoryPolicy, StoreError> {
        let sql = "SELECT length_s FROM period ORDER BY begin_unix_s DESC LIMIT 1";
        let lengths = self.all(sql, [], |row| time(row, 0))?;
        let length = lengths.first().map(|length_s| Duration::from_secs(*length_s));
        Ok(length.map_or_else(HistoryPolicy::default, HistoryPolicy::over))
    }
}

fn period(row: &Row<'_>) -> rusqlite::Result<PeriodEntry> {
    Ok(PeriodEntry {
        begin_unix_s: time(row, 0)?,
        length_s: time(row, 1)?,
        slot_s: time(row, 2)?,
        seed: row.get(3)?,
    })
}

#[cfg(test)]
mod tests;
