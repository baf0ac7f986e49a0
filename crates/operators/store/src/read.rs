//! Reads the recorded measurements.

use crate::error::StoreError;
use crate::open::Reader;
use crate::schema;
use crate::series::{self, Second};
use crate::write::{int, name};
use coordinator::journal::{Past, PastTurn, PathEntry, mode_of};
use coordinator::{
    Attempt, Decline, DeclineKind, End, History, Mode, PastEstimate, PathSeen, Record,
};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use rusqlite::types::Type;
use rusqlite::{Params, Row, params};
use std::collections::BTreeMap;

/// The state of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is running.
    Running,
    /// It has an estimate with both bounds.
    Conclusive,
    /// It has a lower bound.
    LowerBound,
    /// It has no estimate.
    Failed,
    /// The coordinator ended during the turn.
    Interrupted,
}

/// A turn of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Its number in the store.
    pub id: i64,
    /// The relay.
    pub relay: RsaId,
    /// The last known nickname.
    pub nickname: String,
    /// The start of the period.
    pub period_unix_s: u64,
    /// The number of the turn in the period, from 1 on.
    pub number: u32,
    /// The slot.
    pub slot: Option<u32>,
    /// When it began.
    pub started_unix_s: u64,
    /// When it ended.
    pub ended_unix_s: Option<u64>,
    /// The state.
    pub state: State,
    /// How the relay was loaded.
    pub mode: Option<Mode>,
    /// *z*.
    pub capacity: Option<Rate>,
    /// The number of its rounds.
    pub rounds: u32,
    /// The name of the reason why it is not conclusive.
    pub cause: Option<String>,
    /// The reason why it is not conclusive, as text.
    pub reason: Option<String>,
    /// The component to blame for a failure: `relay`, `measurer`, `configuration` or `coordinator`.
    pub blame: Option<String>,
    /// Whether the relay was then done for the period.
    pub is_final: bool,
    /// Its seconds.
    pub seconds: Vec<Second>,
}

impl State {
    const ALL: [Self; 5] =
        [Self::Running, Self::Conclusive, Self::LowerBound, Self::Failed, Self::Interrupted];

    pub(crate) const fn from_record(record: &Record) -> Self {
        match &record.end {
            End::Measured { inconclusive: None, .. } => Self::Conclusive,
            End::Measured { .. } => Self::LowerBound,
            End::Failed { .. } => Self::Failed,
        }
    }

    pub(crate) fn code(self) -> i64 {
        let place = Self::ALL.iter().position(|state| *state == self);
        int(place.unwrap_or_default() as u64)
    }

    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// The name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Conclusive => "conclusive",
            Self::LowerBound => "lower_bound",
            Self::Failed => "failed",
            Self::Interrupted => "broken_off",
        }
    }

    /// Whether it has an estimate.
    #[must_use]
    pub const fn has_result(self) -> bool {
        matches!(self, Self::Conclusive | Self::LowerBound)
    }

    /// Parses that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The name for people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::LowerBound => "lower bound",
            Self::Interrupted => "interrupted",
            Self::Running | Self::Conclusive | Self::Failed => self.name(),
        }
    }
}

impl Measurement {
    /// Whether it failed in a way that shows something about the relay, so that earlier estimates are invalid, like
    /// [`Failure::is_about_relay`](coordinator::Failure::is_about_relay).
    #[must_use]
    pub fn is_about_relay(&self) -> bool {
        is_about_relay(self.blame.as_deref(), self.cause.as_deref())
    }
}

/// Whether a failure with these columns shows something about the relay.
fn is_about_relay(blame: Option<&str>, cause: Option<&str>) -> bool {
    match blame {
        Some("relay") => cause != Some("no_room"),
        Some("configuration") => !matches!(cause, Some("relay_not_now" | "clocks_differ")),
        _ => false,
    }
}

/// The kind of a decline, by the name of the reason, like [`Decline::from_failure`].
pub(crate) fn decline_kind(cause: Option<&str>) -> Option<DeclineKind> {
    match cause? {
        "relay_not_now" => Some(DeclineKind::NotNow),
        "cut_off" | "load_stopped" | "out_of_reach" | "nothing_came" => Some(DeclineKind::Path),
        "words_differ" | "got_nothing" | "no_room" | "clocks_differ" => {
            Some(DeclineKind::Accusation)
        }
        _ => None,
    }
}

const MEASUREMENTS: &str = "SELECT m.id, r.rsa, r.nickname, m.period_unix_s, m.number, m.slot, m.started_unix_s,
     m.ended_unix_s, m.state, m.mode, m.capacity_byte_s, m.rounds, m.cause, m.reason, m.blame, m.is_final, m.seconds
     FROM measurement m JOIN relay r ON r.id = m.relay";

impl Reader {
    /// The last estimate of each relay: its expected capacity, and whether it may be kept.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn history(&self) -> Result<History, StoreError> {
        let sql = "SELECT rsa, capacity_byte_s, estimated_unix_s, mode, is_conclusive, next_sockets FROM relay
                   WHERE estimated_unix_s IS NOT NULL";
        let estimate = |row: &Row<'_>| {
            let estimate = PastEstimate {
                capacity: rate(row, 1)?.unwrap_or_default(),
                measured_unix_s: time(row, 2)?,
                mode: mode(row, 3)?,
                is_conclusive: row.get(4)?,
                sockets: row.get(5)?,
            };
            Ok((rsa(row, 0)?, estimate))
        };
        let mut history = History::default();
        let seen = |row: &Row<'_>| Ok((rsa(row, 0)?, time(row, 1)?));
        for (relay, at_unix_s) in self.all("SELECT rsa, first_seen_unix_s FROM relay", [], seen)? {
            history.see(relay, at_unix_s);
        }
        for (relay, estimate) in self.all(sql, [], estimate)? {
            history.add(relay, estimate);
        }
        // The results of three days, with which new ones are compared.
        let sql = "SELECT r.rsa, m.ended_unix_s, m.capacity_byte_s
                   FROM relay r JOIN measurement m ON m.relay = r.id
                   WHERE m.period_unix_s >= r.estimated_unix_s - 32 * 86400 AND m.ended_unix_s > r.estimated_unix_s - 3 * 86400
                   AND m.capacity_byte_s IS NOT NULL";
        let recent = |row: &Row<'_>| Ok((rsa(row, 0)?, time(row, 1)?, rate(row, 2)?));
        for (relay, measured_unix_s, capacity) in self.all(sql, [], recent)? {
            history.add_recent(relay, measured_unix_s, capacity.unwrap_or_default());
        }
        // By the index of each relay's turns. A turn belongs to a period that may have begun before the estimate was
        // made; orders of the previous day count against the relay's limit.
        let sql = "SELECT r.rsa, r.estimated_unix_s, m.started_unix_s, m.ended_unix_s, m.mode, m.cause, m.blame
                   FROM relay r JOIN measurement m ON m.relay = r.id
                   WHERE m.period_unix_s >= r.estimated_unix_s - 32 * 86400 AND m.ended_unix_s > r.estimated_unix_s - 86400";
        let turn = |row: &Row<'_>| {
            let (cause, blame): (Option<String>, Option<String>) = (row.get(5)?, row.get(6)?);
            let is_after_estimate = time(row, 3)? > time(row, 1)?;
            let is_refuted =
                is_after_estimate && is_about_relay(blame.as_deref(), cause.as_deref());
            let kind = decline_kind(cause.as_deref());
            let is_order = mode(row, 4)? == Some(Mode::Echo) && kind != Some(DeclineKind::NotNow);
            Ok((rsa(row, 0)?, time(row, 2)?, time(row, 3)?, is_refuted, kind, is_order))
        };
        for (relay, started_unix_s, ended_unix_s, is_refuted, kind, is_order) in
            self.all(sql, [], turn)?
        {
            if is_refuted {
                history.refute(relay, ended_unix_s);
            }
            if let Some(kind) = kind {
                history.decline(relay, Decline { at_unix_s: ended_unix_s, kind });
            }
            if is_order {
                history.order(relay, started_unix_s);
            }
        }
        Ok(history)
    }

    /// The measurers' observations of their paths to relays, of any age.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn paths(&self) -> Result<Vec<PathEntry>, StoreError> {
        if !self.has(schema::WITH_PATHS)? {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT r.rsa, p.measurer, p.seen_unix_s, p.rtt_us, p.loss_ppm, p.held_back_byte_s
                   FROM path p JOIN relay r ON r.id = p.relay ORDER BY p.relay, p.measurer";
        let path = |row: &Row<'_>| {
            let (relay, measurer, seen_unix_s) = (rsa(row, 0)?, row.get(1)?, time(row, 2)?);
            Ok(PathEntry { relay, measurer, path: path_seen(row, 3)?, seen_unix_s })
        };
        self.all(sql, [], path)
    }

    /// The progress of each relay in a period: by the turns that began in it, and by estimates from bandwidth files. A
    /// turn of the previous period may end in this one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn period(&self, begin_unix_s: u64) -> Result<BTreeMap<RsaId, Past>, StoreError> {
        let sql = "SELECT r.rsa, m.number, m.is_final, m.follows, d.json
                   FROM measurement m JOIN relay r ON r.id = m.relay LEFT JOIN record d ON d.measurement = m.id
                   WHERE m.period_unix_s = ?1 ORDER BY m.relay, m.number";
        let turn = |row: &Row<'_>| {
            let follows: Option<String> = row.get(3)?;
            let follows: Option<Attempt> = match follows {
                Some(text) => Some(serde_json::from_str(&text).map_err(|error| bad(3, error))?),
                None => None,
            };
            let record: Option<Vec<u8>> = row.get(4)?;
            let record: Option<Record> = match record {
                Some(bytes) => Some(series::inflate(&bytes).map_err(|error| bad(4, error))?),
                None => None,
            };
            Ok((rsa(row, 0)?, row.get::<_, u32>(1)?, row.get::<_, bool>(2)?, follows, record))
        };
        let mut pasts: BTreeMap<RsaId, Past> = BTreeMap::new();
        for (relay, number, is_final, follows, record) in
            self.all(sql, [int(begin_unix_s)], turn)?
        {
            let past = pasts.remove(&relay).unwrap_or_default();
            let past = past.then(PastTurn { number, is_final, follows, record });
            pasts.insert(relay, past);
        }
        // By the index of end times: the index of relays would read all measurements ever made.
        let sql = "SELECT rsa FROM relay WHERE estimated_unix_s >= ?1 AND id NOT IN
                   (SELECT relay FROM measurement WHERE ended_unix_s >= ?1)";
        for relay in self.all(sql, [int(begin_unix_s)], |row| rsa(row, 0))? {
            let past = Past { turns: 0, is_done: true, follows: None, record: None };
            pasts.entry(relay).or_insert(past);
        }
        Ok(pasts)
    }

    /// A relay's turns, the newest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measurements_of(
        &self,
        relay: RsaId,
        most: usize,
    ) -> Result<Vec<Measurement>, StoreError> {
        let sql = format!(
            "{MEASUREMENTS} WHERE m.relay = (SELECT id FROM relay WHERE rsa = ?1)
             ORDER BY m.period_unix_s DESC, m.number DESC LIMIT ?2"
        );
        self.all(&sql, params![&relay.0[..], int(most as u64)], measurement)
    }

    /// The turns that began in a period, in the order of their slots.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measurements_in(
        &self,
        begin_unix_s: u64,
        skip: usize,
        most: usize,
    ) -> Result<Vec<Measurement>, StoreError> {
        let sql = format!(
            "{MEASUREMENTS} WHERE m.period_unix_s = ?1 ORDER BY m.slot, m.relay LIMIT ?2 OFFSET ?3"
        );
        self.all(&sql, params![int(begin_unix_s), int(most as u64), int(skip as u64)], measurement)
    }

    /// The running turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn running(&self) -> Result<Vec<Measurement>, StoreError> {
        self.all(&format!("{MEASUREMENTS} WHERE m.state = 0 ORDER BY m.id"), [], measurement)
    }

    /// The turn with this number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn measurement(&self, id: i64) -> Result<Option<Measurement>, StoreError> {
        let found = self.all(&format!("{MEASUREMENTS} WHERE m.id = ?1"), [id], measurement)?;
        Ok(found.into_iter().next())
    }

    /// The whole record of a turn, if it has ended and is still kept.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn record(&self, id: i64) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT json FROM record WHERE measurement = ?1";
        let record = |row: &Row<'_>| {
            let bytes: Vec<u8> = row.get(0)?;
            series::inflate(&bytes).map_err(|error| bad(0, error))
        };
        Ok(self.all(sql, [id], record)?.into_iter().next())
    }

    /// Calls `notify` with every turn that has ended since then, the oldest first; ends early if it returns `false`.
    /// Memory holds one turn at a time.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn each_measurement(
        &self,
        since_unix_s: u64,
        relay: Option<RsaId>,
        mut notify: impl FnMut(Measurement) -> bool,
    ) -> Result<(), StoreError> {
        let of = |source| StoreError::of(&self.path, source);
        let sql = format!(
            "{MEASUREMENTS} WHERE m.ended_unix_s >= ?1 AND (?2 IS NULL OR r.rsa = ?2) ORDER BY m.ended_unix_s, m.id"
        );
        let mut statement = self.db.prepare(&sql).map_err(of)?;
        let relay = relay.map(|relay| relay.0.to_vec());
        let mut rows = statement.query(params![int(since_unix_s), relay]).map_err(of)?;
        while let Some(row) = rows.next().map_err(of)? {
            if !notify(measurement(row).map_err(of)?) {
                break;
            }
        }
        Ok(())
    }

    /// The number of turns that ended since then, and of those that failed for no reason of the relay.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn attempts(&self, since_unix_s: u64) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT state, blame, cause, count(*) FROM measurement WHERE ended_unix_s >= ?1 GROUP BY 1, 2, 3";
        let group = |row: &Row<'_>| {
            let (blame, cause): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
            let has_result = state(row, 0)?.is_some_and(State::has_result);
            let failed = !has_result && !is_about_relay(blame.as_deref(), cause.as_deref());
            Ok((time(row, 3)?, failed))
        };
        let groups = self.all(sql, [int(since_unix_s)], group)?;
        let failures = groups.iter().filter(|(_, failed)| *failed).map(|(count, _)| count).sum();
        Ok((groups.iter().map(|(count, _)| count).sum(), failures))
    }

    /// A number that changes with every write of another connection.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn version(&self) -> Result<i64, StoreError> {
        let version = self.db.pragma_query_value(None, "data_version", |row| row.get(0));
        version.map_err(|source| StoreError::of(&self.path, source))
    }

    pub(crate) fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let of = |source| StoreError::of(&self.path, source);
        let mut statement = self.db.prepare_cached(sql).map_err(of)?;
        let found = statement.query_map(values, row).map_err(of)?;
        found.collect::<Result<_, _>>().map_err(of)
    }
}

fn measurement(row: &Row<'_>) -> rusqlite::Result<Measurement> {
    let seconds: Option<Vec<u8>> = row.get(16)?;
    let seconds = match seconds {
        Some(bytes) => series::unpack(&bytes).map_err(|error| bad(16, error))?,
        None => Vec::new(),
    };
    let mut state = state(row, 8)?.unwrap_or(State::Interrupted);
    let (mut cause, mut reason): (Option<String>, Option<String>) = (row.get(12)?, row.get(13)?);
    // Earlier versions called results conclusive that their own seconds contradict.
    if let Some(doubt) = series::doubt(&seconds).filter(|_| state == State::Conclusive) {
        state = State::LowerBound;
        (cause, reason) = (name(&doubt), Some(doubt.to_string()));
    }
    Ok(Measurement {
        id: row.get(0)?,
        relay: rsa(row, 1)?,
        nickname: row.get(2)?,
        period_unix_s: time(row, 3)?,
        number: row.get(4)?,
        slot: row.get(5)?,
        started_unix_s: time(row, 6)?,
        ended_unix_s: maybe_time(row, 7)?,
        state,
        mode: mode(row, 9)?,
        capacity: rate(row, 10)?,
        rounds: row.get::<_, Option<u32>>(11)?.unwrap_or_default(),
        cause,
        reason,
        blame: row.get(14)?,
        is_final: row.get(15)?,
        seconds,
    })
}

pub(crate) fn bad(
    column: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(error))
}

pub(crate) fn rsa(row: &Row<'_>, column: usize) -> rusqlite::Result<RsaId> {
    row.get(column).map(RsaId)
}

pub(crate) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let value: Option<i64> = row.get(column)?;
    Ok(value.map(|value| u64::try_from(value).unwrap_or_default()))
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    maybe_time(row, column).map(Option::unwrap_or_default)
}

pub(crate) fn rate(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Rate>> {
    Ok(maybe_time(row, column)?.map(Rate::from_byte_per_s))
}

/// A measurer's observations of a path, in three columns from this one on: `rtt_us, loss_ppm, held_back_byte_s`.
pub(crate) fn path_seen(row: &Row<'_>, first: usize) -> rusqlite::Result<PathSeen> {
    Ok(PathSeen {
        rtt: maybe_time(row, first)?.map(Duration::from_micros),
        loss_ppm: row.get(first + 1)?,
        limit: rate(row, first + 2)?,
    })
}

pub(crate) fn mode(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Mode>> {
    let word: Option<String> = row.get(column)?;
    Ok(word.as_deref().and_then(mode_of))
}

pub(crate) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<State>> {
    let code: Option<i64> = row.get(column)?;
    Ok(code.and_then(State::from_code))
}
