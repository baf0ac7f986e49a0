//! The coordinator's log, from which it continues a period after a crash.
//!
//! A [`Period`](crate::period::Period) produces the entries; the crate `store` writes them.

use crate::co_location::Suspicion;
use crate::history::PastEstimate;
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::record::{Record, Subject};
use crate::slot_schedule::Counts;
use crate::turn::Attempt;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::Rate;
use onion::identity::{RelayIds, RsaId};

/// A log entry. Writing it twice has no further effect.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A period begins, or continues after a pause.
    Period(PeriodEntry),
    /// A consensus was read, with the decision about each of its relays.
    Consensus(ConsensusEntry),
    /// A measurement begins.
    Started(MeasurementStarted),
    /// A measurement has ended. [`Started`](Self::Started) need not have been written before.
    Finished(Box<MeasurementFinished>),
    /// An estimate from another source, such as an old bandwidth file. It counts if it is newer than the known one.
    Imported(RelayIds, String, PastEstimate),
    /// The team's measurers, by their keys. All others no longer belong to it.
    Team(Vec<String>),
    /// A measurer's state, if it has changed.
    Measurer(MeasurerHealth),
    /// The progress of the period.
    Progress(PeriodProgress),
    /// A bandwidth file was written.
    Published(PublishedFile),
    /// The relays that may share a machine, by the current data. It replaces earlier suspicions.
    Suspicions(Vec<Suspicion>),
}

/// A period of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodEntry {
    /// Its start.
    pub begin_unix_s: u64,
    /// Its length.
    pub length_s: u64,
    /// The length of its slots; zero if there are none.
    pub slot_s: u64,
    /// Its seed, which is published only once the period is over. It reveals nothing about other periods.
    pub seed: Option<[u8; 32]>,
}

/// A consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsensusEntry {
    /// The start of its validity, which identifies it.
    pub valid_after_unix_s: u64,
    /// When it was read.
    pub at_unix_s: u64,
    /// Its source, as text.
    pub source: String,
    /// The number of authorities with valid signatures, if any were verified.
    pub signers: Option<u32>,
    /// All its relays.
    pub relays: Vec<ListedRelay>,
}

/// A relay in a consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRelay {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its weight in the consensus, in KB/s.
    pub weight_kb_s: Option<u32>,
    /// The reason why it is not measured; `None` if it is.
    pub left_out: Option<String>,
}

/// A relay's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementStarted {
    /// The relay's identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Its address.
    pub address: SocketAddr,
    /// The start of the period.
    pub period_unix_s: u64,
    /// The number of the turn in the period, from 1 on.
    pub number: u32,
    /// The slot in which it began.
    pub slot: Option<u32>,
    /// When it began.
    pub started_unix_s: u64,
}

impl MeasurementStarted {
    /// The relay, with an unknown limit.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject {
            nickname: self.nickname.clone(),
            ids: self.ids,
            address: self.address,
            limit: None,
        }
    }
}

/// The end of a relay's turn.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementFinished {
    /// The turn.
    pub begun: MeasurementStarted,
    /// The result.
    pub record: Record,
    /// The turn that has to follow, if any.
    pub follows: Option<Attempt>,
    /// Whether the relay is done for the period.
    pub is_final: bool,
    /// The measurers' observations of their paths to the relay. The newest counts.
    pub paths: Vec<PathEntry>,
}

/// A measurer's observation of its path to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// The relay. It has been measured, so it is known.
    pub relay: RsaId,
    /// The measurer's public key.
    pub measurer: String,
    /// The observation.
    pub path: PathSeen,
    /// The time of the observation.
    pub seen_unix_s: u64,
}

/// A measurer's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerHealth {
    /// Its public key.
    pub key: String,
    /// Its index in the team.
    pub place: usize,
    /// Its address.
    pub address: String,
    /// Its capacity.
    pub capacity: Rate,
    /// Whether it answers.
    pub state: MeasurerState,
    /// Its report, or the error.
    pub detail: String,
    /// The time of the observation.
    pub at_unix_s: u64,
}

/// Whether a measurer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasurerState {
    /// It answers.
    Up,
    /// It does not answer.
    Down,
}

/// The progress of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodProgress {
    /// The time of the observation.
    pub at_unix_s: u64,
    /// The period.
    pub period_unix_s: u64,
    /// The number of relays in each state.
    pub counts: Counts,
}

/// A bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// When it was made.
    pub created_unix_s: u64,
    /// Its path.
    pub path: String,
    /// The number of relay lines.
    pub lines: usize,
    /// The number of lines that authorities use for their votes.
    pub voted: usize,
    /// The sum of the capacities in these lines, in KB/s.
    pub capacity_kb_s: u64,
    /// The country of the coordinator, in the header of the file.
    pub scanner_country: Option<String>,
}

impl MeasurerState {
    /// The serialised name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// The serialised name of a mode.
#[must_use]
pub const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Transit => "transit",
        Mode::Echo => "echo",
    }
}

/// The mode with this [name](mode_word).
#[must_use]
pub fn mode_of(word: &str) -> Option<Mode> {
    [Mode::Transit, Mode::Echo].into_iter().find(|mode| mode_word(*mode) == word)
}

impl MeasurementStarted {
    /// The relay, by its authoritative identity.
    #[must_use]
    pub const fn relay(&self) -> RsaId {
        self.ids.rsa
    }
}

/// A relay's progress in a period, from the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// The number of measurements that have begun.
    pub turns: u32,
    /// Whether the relay is done.
    pub is_done: bool,
    /// The turn that has to follow, if the last one required it.
    pub follows: Option<Attempt>,
    /// All finished measurements, as one.
    pub record: Option<Record>,
}

/// A recorded measurement: the part that [`Past::then`] needs.
#[derive(Clone, Debug)]
pub struct PastTurn {
    /// Its number in the period, from 1 on.
    pub number: u32,
    /// Whether it was the relay's last one in the period.
    pub is_final: bool,
    /// The turn that follows.
    pub follows: Option<Attempt>,
    /// Its result; `None` if it was interrupted.
    pub record: Option<Record>,
}

impl Past {
    /// Adds the next measurement of the same relay. An interrupted one leaves the state unchanged.
    #[must_use]
    pub fn then(self, turn: PastTurn) -> Self {
        let PastTurn { number, is_final, follows, record } = turn;
        let is_ended = record.is_some();
        let record = match (self.record, record) {
            (Some(earlier), Some(later)) => Some(earlier.followed_by(later)),
            (earlier, later) => later.or(earlier),
        };
        Self {
            turns: number,
            is_done: is_final || (self.is_done && !is_ended),
            follows: if is_ended { follows } else { self.follows },
            record,
        }
    }
}
