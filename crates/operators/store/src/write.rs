//! Writes entries, each once, however often it is submitted.

use crate::error::StoreError;
use crate::open::Store;
use crate::overview::AHEAD_MAX_S;
use crate::read::State;
use crate::series;
use crate::suspects;
use crate::{
    ConsensusEntry, Entry, ListedRelay, MeasurementFinished, MeasurementStarted, MeasurerHealth,
    PathEntry, PeriodEntry, PeriodProgress, PublishedFile, mode_word,
};
use coordinator::{Inconclusive, PastEstimate, Record, Verdict};
use onion::identity::RelayIds;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde::Serialize;
use serde_json::Value;

impl Store {
    /// Writes all of these or, on an error, none of them. When this returns, they are on the disk.
    ///
    /// # Errors
    /// [`StoreError::Full`] and others after which the same entries may be written again.
    pub fn write<'e>(
        &mut self,
        entries: impl IntoIterator<Item = &'e Entry>,
    ) -> Result<(), StoreError> {
        self.change(|db| entries.into_iter().try_for_each(|entry| write(db, entry)))
    }

    /// Marks turns that an earlier process began and did not end, since it was killed. They are measured again. Returns
    /// their number.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn close_unfinished(&mut self) -> Result<usize, StoreError> {
        self.change(|db| {
            let interrupted = "UPDATE measurement SET state = ?1, is_final = 0 WHERE state = ?2";
            db.execute(interrupted, [State::Interrupted.code(), State::Running.code()])
        })
    }

    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let path = &self.reader.path;
        let of = |source| StoreError::of(path, source);
        let immediate = TransactionBehavior::Immediate;
        let transaction = self.reader.db.transaction_with_behavior(immediate).map_err(of)?;
        let done = change(&transaction).map_err(of)?;
        transaction.commit().map_err(of)?;
        Ok(done)
    }
}

/// SQLite's integers have a sign.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn write(db: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Period(period) => write_period(db, period),
        Entry::Consensus(seen) => write_consensus(db, seen),
        Entry::Started(begun) => write_started(db, begun).map(drop),
        Entry::Finished(finished) => write_finished(db, finished),
        Entry::Imported(ids, nickname, estimate) => {
            let relay = relay_id(db, ids, nickname, "", estimate.measured_unix_s)?;
            write_estimate(db, relay, estimate, Origin::Imported)
        }
        Entry::Team(keys) => write_team(db, keys),
        Entry::Measurer(health) => write_measurer(db, health),
        Entry::Progress(progress) => write_progress(db, progress),
        Entry::Published(issue) => write_file(db, issue),
        Entry::Suspicions(suspicions) => suspects::write(db, suspicions),
    }
}

/// If the length of periods was changed, two of them may have the same beginning: the longer one counts, and a seed only
/// with its own length. The plan of a shorter one cannot be verified then.
fn write_period(db: &Connection, period: &PeriodEntry) -> rusqlite::Result<()> {
    let PeriodEntry { begin_unix_s, length_s, slot_s, seed } = period;
    let sql = "INSERT INTO period (begin_unix_s, length_s, slot_s, seed) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (begin_unix_s) DO UPDATE SET
               length_s = max(length_s, excluded.length_s), slot_s = max(slot_s, excluded.slot_s),
               seed = CASE WHEN excluded.length_s > length_s THEN excluded.seed
               WHEN excluded.length_s < length_s THEN seed ELSE coalesce(seed, excluded.seed) END";
    let seed = seed.as_ref().map(|seed| &seed[..]);
    let values = params![int(*begin_unix_s), int(*length_s), int(*slot_s), seed];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

fn write_consensus(db: &Connection, seen: &ConsensusEntry) -> rusqlite::Result<()> {
    let ConsensusEntry { valid_after_unix_s, at_unix_s, source, signers, relays } = seen;
    let sql = "INSERT INTO consensus
               (valid_after_unix_s, seen_unix_s, source, relays, to_be_measured, signers, weight_kb_s)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (valid_after_unix_s) DO UPDATE SET
               to_be_measured = excluded.to_be_measured, signers = excluded.signers, weight_kb_s = excluded.weight_kb_s";
    let measured = relays.iter().filter(|relay| relay.left_out.is_none()).count();
    db.prepare_cached(sql)?.execute(params![
        int(*valid_after_unix_s),
        int(*at_unix_s),
        source,
        int(relays.len() as u64),
        int(measured as u64),
        signers,
        int(relays.iter().filter_map(|relay| relay.weight_kb_s).map(u64::from).sum()),
    ])?;
    // A consensus from a clock that was ahead must not hide all later ones.
    let newest = "SELECT coalesce(max(valid_after_unix_s) <= ?1, TRUE) FROM consensus
                  WHERE valid_after_unix_s <= ?2";
    let is_newest: bool = db
        .prepare_cached(newest)?
        .query_row([int(*valid_after_unix_s), int(*at_unix_s + AHEAD_MAX_S)], |row| row.get(0))?;
    if is_newest {
        // A relay that has left the consensus has no weight.
        db.execute("UPDATE relay SET weight_kb_s = NULL WHERE weight_kb_s IS NOT NULL", [])?;
    }
    let sql = "UPDATE relay SET left_out = ?2, last_seen_unix_s = max(last_seen_unix_s, ?3),
               weight_kb_s = CASE WHEN ?5 THEN ?4 ELSE weight_kb_s END WHERE id = ?1";
    for ListedRelay { ids, nickname, address, weight_kb_s, left_out } in relays {
        let relay = relay_id(db, ids, nickname, &address.to_string(), *at_unix_s)?;
        let left_out = left_out.as_deref().unwrap_or("");
        db.prepare_cached(sql)?.execute(params![
            relay,
            left_out,
            int(*at_unix_s),
            weight_kb_s,
            is_newest
        ])?;
    }
    Ok(())
}

/// The number of a relay, which is created if necessary.
fn relay_id(
    db: &Connection,
    ids: &RelayIds,
    nickname: &str,
    address: &str,
    at_unix_s: u64,
) -> rusqlite::Result<i64> {
    let sql =
        "INSERT INTO relay (rsa, ed25519, nickname, address, first_seen_unix_s, last_seen_unix_s)
               VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (rsa) DO UPDATE SET
               ed25519 = coalesce(excluded.ed25519, ed25519), nickname = excluded.nickname,
               address = CASE excluded.address WHEN '' THEN address ELSE excluded.address END
               RETURNING id";
    let ed25519 = ids.ed25519.as_ref().map(|id| &id.0[..]);
    let values = params![&ids.rsa.0[..], ed25519, nickname, address, int(at_unix_s)];
    db.prepare_cached(sql)?.query_row(values, |row| row.get(0))
}

/// The numbers of a turn's relay, and of the measurement if it has not ended.
struct TurnIds {
    relay: i64,
    unfinished: Option<i64>,
}

fn write_started(db: &Connection, begun: &MeasurementStarted) -> rusqlite::Result<TurnIds> {
    let MeasurementStarted { ids, nickname, address, period_unix_s, number, slot, started_unix_s } =
        begun;
    let relay = relay_id(db, ids, nickname, &address.to_string(), *started_unix_s)?;
    let sql = "INSERT INTO measurement (relay, period_unix_s, number, slot, started_unix_s)
               VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (relay, period_unix_s, number) DO NOTHING";
    let values = params![relay, int(*period_unix_s), number, slot, int(*started_unix_s)];
    db.prepare_cached(sql)?.execute(values)?;
    let sql = "SELECT id FROM measurement
               WHERE relay = ?1 AND period_unix_s = ?2 AND number = ?3 AND ended_unix_s IS NULL";
    let values = params![relay, int(*period_unix_s), number];
    let unfinished = db.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?;
    Ok(TurnIds { relay, unfinished })
}

fn write_finished(db: &Connection, finished: &MeasurementFinished) -> rusqlite::Result<()> {
    let MeasurementFinished { begun, record, follows, is_final, paths } = finished;
    let TurnIds { relay, unfinished } = write_started(db, begun)?;
    // Otherwise it was already written.
    let Some(measurement) = unfinished else { return Ok(()) };
    paths.iter().try_for_each(|path| write_path(db, path))?;
    let state = State::from_record(record);
    let reason = Reason::from_record(record);
    let capacity = record.capacity().map(|capacity| int(capacity.as_byte_per_s()));
    let sql = "UPDATE measurement SET ended_unix_s = ?2, state = ?3, mode = ?4, capacity_byte_s = ?5,
               rounds = ?6, cause = ?7, reason = ?8, blame = ?9, is_final = ?10, follows = ?11, seconds = ?12
               WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![
        measurement,
        int(record.ended_unix_s),
        state.code(),
        mode_word(record.mode),
        capacity,
        int(record.rounds.len() as u64),
        reason.cause,
        reason.reason,
        reason.blame,
        is_final,
        follows.as_ref().map(json),
        series::pack(&series::of(record)),
    ])?;
    let sql = "INSERT INTO record (measurement, json, ended_unix_s) VALUES (?1, ?2, ?3)";
    let values = params![measurement, series::deflate(record), int(record.ended_unix_s)];
    db.prepare_cached(sql)?.execute(values)?;
    // A measurement that another one follows is no result. The one made last counts: an earlier one that has a later date is from a
    // wrong clock.
    if *is_final {
        let sql = "UPDATE relay SET last_state = ?2, last_ended_unix_s = ?3, last_cause = ?4 WHERE id = ?1";
        let values = params![relay, state.code(), int(record.ended_unix_s), reason.cause];
        db.prepare_cached(sql)?.execute(values)?;
    }
    match PastEstimate::of(record) {
        Some(estimate) if record.wants_another_turn() => {
            write_estimate(db, relay, &estimate, Origin::Bound)
        }
        Some(estimate) => write_estimate(db, relay, &estimate, Origin::Measured),
        None => Ok(()),
    }
}

/// Where an estimate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A bandwidth file. It counts if it is newer.
    Imported,
    /// A measurement. It counts, since it is the last one made; dates may be wrong.
    Measured,
    /// A measurement with a lower bound that another turn is to replace. As in `coordinator::History::add_record`, it does not replace
    /// a greater estimate of the last month.
    Bound,
}

fn write_estimate(
    db: &Connection,
    relay: i64,
    estimate: &PastEstimate,
    origin: Origin,
) -> rusqlite::Result<()> {
    let PastEstimate { capacity, measured_unix_s, mode, is_conclusive, sockets } = estimate;
    let sql = "UPDATE relay SET capacity_byte_s = ?2, estimated_unix_s = ?3, mode = ?4, is_conclusive = ?5, next_sockets = ?6
               WHERE id = ?1 AND (NOT ?7 OR estimated_unix_s IS NULL OR estimated_unix_s < ?3)
               AND (NOT ?8 OR capacity_byte_s IS NULL OR capacity_byte_s <= ?2 OR abs(estimated_unix_s - ?3) > 30 * 86400)";
    db.prepare_cached(sql)?
        .execute(params![
            relay,
            int(capacity.as_byte_per_s()),
            int(*measured_unix_s),
            mode.map(mode_word),
            is_conclusive,
            sockets,
            origin == Origin::Imported,
            origin == Origin::Bound,
        ])
        .map(drop)
}

/// The last observation counts.
fn write_path(db: &Connection, path: &PathEntry) -> rusqlite::Result<()> {
    let PathEntry { relay, measurer, path, seen_unix_s } = path;
    let sql = "INSERT INTO path (relay, measurer, seen_unix_s, rtt_us, loss_ppm, held_back_byte_s)
               SELECT id, ?2, ?3, ?4, ?5, ?6 FROM relay WHERE rsa = ?1
               ON CONFLICT (relay, measurer) DO UPDATE SET
               seen_unix_s = excluded.seen_unix_s, rtt_us = excluded.rtt_us, loss_ppm = excluded.loss_ppm,
               held_back_byte_s = excluded.held_back_byte_s";
    let rtt_us = path.rtt.map(|rtt| int(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)));
    let limit = path.limit.map(|limit| int(limit.as_byte_per_s()));
    let values = params![&relay.0[..], measurer, int(*seen_unix_s), rtt_us, path.loss_ppm, limit];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

fn write_team(db: &Connection, keys: &[String]) -> rusqlite::Result<()> {
    let known: Vec<String> = db
        .prepare_cached("SELECT key FROM measurer")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for gone in known.iter().filter(|key| !keys.contains(key)) {
        db.prepare_cached("DELETE FROM measurer WHERE key = ?1")?.execute([gone])?;
        db.prepare_cached("DELETE FROM path WHERE measurer = ?1")?.execute([gone])?;
    }
    Ok(())
}

fn write_measurer(db: &Connection, health: &MeasurerHealth) -> rusqlite::Result<()> {
    let MeasurerHealth { key, place, address, capacity, state, detail, at_unix_s } = health;
    let values = params![
        key,
        int(*place as u64),
        address,
        int(capacity.as_byte_per_s()),
        state.word(),
        detail,
        int(*at_unix_s)
    ];
    let known = "SELECT 1 FROM measurer WHERE key = ?1 AND state = ?2 AND capacity_byte_s = ?3";
    let same = params![key, state.word(), int(capacity.as_byte_per_s())];
    let is_same = db.prepare_cached(known)?.exists(same)?;
    let sql =
        "INSERT INTO measurer (key, place, address, capacity_byte_s, state, detail, since_unix_s)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (key) DO UPDATE SET
               place = excluded.place, address = excluded.address, detail = excluded.detail,
               capacity_byte_s = excluded.capacity_byte_s, since_unix_s =
               CASE state WHEN excluded.state THEN since_unix_s ELSE excluded.since_unix_s END,
               state = excluded.state";
    db.prepare_cached(sql)?.execute(values)?;
    if is_same {
        return Ok(());
    }
    let sql =
        "INSERT OR IGNORE INTO measurer_event (at_unix_s, key, state, capacity_byte_s, detail)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let capacity = int(capacity.as_byte_per_s());
    let values = params![int(*at_unix_s), key, state.word(), capacity, detail];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

fn write_progress(db: &Connection, progress: &PeriodProgress) -> rusqlite::Result<()> {
    let PeriodProgress { at_unix_s, period_unix_s, counts } = progress;
    let sql = "INSERT OR REPLACE INTO progress
               (one, at_unix_s, period_unix_s, waiting, running, done, without_slot)
               VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)";
    let values = params![
        int(*at_unix_s),
        int(*period_unix_s),
        int(counts.waiting as u64),
        int(counts.running as u64),
        int(counts.done as u64),
        int(counts.without_slot as u64),
    ];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

fn write_file(db: &Connection, issue: &PublishedFile) -> rusqlite::Result<()> {
    let PublishedFile { created_unix_s, path, lines, voted, capacity_kb_s, scanner_country } =
        issue;
    let sql = "INSERT OR REPLACE INTO bandwidth_file
               (created_unix_s, path, lines, voted, capacity_kb_s, scanner_country)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let [lines, voted] = [*lines, *voted].map(|count| int(count as u64));
    let capacity_kb_s = int(*capacity_kb_s);
    let values = params![int(*created_unix_s), path, lines, voted, capacity_kb_s, scanner_country];
    db.prepare_cached(sql)?.execute(values).map(drop)
}

/// The reason why a measurement is not conclusive, if any.
#[derive(Default)]
struct Reason {
    cause: Option<String>,
    reason: Option<String>,
    blame: Option<String>,
}

impl Reason {
    fn from_record(record: &Record) -> Self {
        match record.verdict() {
            Verdict::Conclusive => Self::default(),
            // This record is of one turn. Its words would say that no other one followed.
            Verdict::LowerBound(reason @ Inconclusive::LoadTooSmall { next }) => Self {
                cause: name(reason),
                reason: Some(format!(
                    "the load was too small to show the relay's limit; another measurement was to follow, with a load for {}",
                    next.guess
                )),
                blame: None,
            },
            Verdict::LowerBound(reason) => {
                Self { cause: name(reason), reason: Some(reason.to_string()), blame: None }
            }
            Verdict::Failed(reason) => Self {
                cause: name(reason),
                reason: Some(record.to_string()),
                blame: Some(reason.blame().to_string()),
            },
        }
    }
}

/// The serialised name of a reason, without its data.
pub(crate) fn name(reason: &impl Serialize) -> Option<String> {
    match serde_json::to_value(reason).ok()? {
        Value::String(name) => Some(name),
        Value::Object(fields) => fields.into_iter().next().map(|(name, _)| name),
        _ => None,
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("these types have only text as keys")
}

#[cfg(test)]
mod tests;
