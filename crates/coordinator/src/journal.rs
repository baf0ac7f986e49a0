//! What a coordinator records, so that a period goes on where it was after a crash.
//!
//! A [`Period`](crate::period::Period) says what to write; the crate `store` writes it.

use crate::co_location::Suspicion;
use crate::history::PastEstimate;
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::record::Record;
use crate::slot_schedule::Counts;
use crate::turn::Attempt;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::Rate;
use onion::identity::{RelayIds, RsaId};

/// One thing that is recorded. Written twice, it is there once.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A period begins, or went on after a pause.
    Period(PeriodEntry),
    /// A consensus was read, and what is to be done with its relays.
    Consensus(ConsensusEntry),
    /// A measurement begins.
    Started(MeasurementStarted),
    /// A measurement has ended. [`Started`](Self::Started) need not have been written before.
    Finished(Box<MeasurementFinished>),
    /// An estimate that comes from elsewhere, such as from an old bandwidth file. It counts if it is newer than what is
    /// known.
    Imported(RelayIds, String, PastEstimate),
    /// The team's measurers, by their keys: others are of it no more.
    Team(Vec<String>),
    /// A measurer's state, if it has changed.
    Measurer(MeasurerHealth),
    /// How far the period is.
    Progress(PeriodProgress),
    /// A bandwidth file was written.
    Published(PublishedFile),
    /// Which relays may share a machine, by all that is known now: in place of what was suspected before.
    Suspicions(Vec<Suspicion>),
}

/// A period of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodEntry {
    /// When it begins.
    pub begin_unix_s: u64,
    /// How long it is.
    pub length_s: u64,
    /// How long its slots are; zero if there are none.
    pub slot_s: u64,
    /// Its seed, which is told only once it is over. It tells nothing of other periods.
    pub seed: Option<[u8; 32]>,
}

/// A consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsensusEntry {
    /// From when on it is valid: by this it is known.
    pub valid_after_unix_s: u64,
    /// When it was seen.
    pub at_unix_s: u64,
    /// Where it comes from, in words.
    pub source: String,
    /// Authorities whose signatures hold, if any were verified.
    pub signers: Option<u32>,
    /// All its relays.
    pub relays: Vec<ListedRelay>,
}

/// A relay in a consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRelay {
    /// Who.
    pub ids: RelayIds,
    /// What it calls itself.
    pub nickname: String,
    /// Where.
    pub address: SocketAddr,
    /// Why it is not measured; `None` if it is.
    pub left_out: Option<String>,
}

/// A relay's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementStarted {
    /// Who.
    pub ids: RelayIds,
    /// What it calls itself.
    pub nickname: String,
    /// Where.
    pub address: SocketAddr,
    /// When the period began.
    pub period_unix_s: u64,
    /// Which of its turns in the period, from 1 on.
    pub number: u32,
    /// The slot, which has begun.
    pub slot: Option<u32>,
    /// When it began.
    pub started_unix_s: u64,
}

/// The end of a relay's turn.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementFinished {
    /// Which one.
    pub begun: MeasurementStarted,
    /// What came of it.
    pub record: Record,
    /// The turn that has to follow, if somebody is to see to that.
    pub follows: Option<Attempt>,
    /// Whether that was all about the relay in the period.
    pub is_final: bool,
    /// What measurers have seen of their paths to the relay. The newest counts.
    pub paths: Vec<PathEntry>,
}

/// What a measurer has seen of its path to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// To which relay. It is known already: it was measured.
    pub relay: RsaId,
    /// The measurer's public key.
    pub measurer: String,
    /// What it has seen.
    pub path: PathSeen,
    /// When that was.
    pub seen_unix_s: u64,
}

/// What a measurer is up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerHealth {
    /// Its public key.
    pub key: String,
    /// Its number in the team.
    pub place: usize,
    /// Where it is asked.
    pub address: String,
    /// What it has to give.
    pub capacity: Rate,
    /// Whether it answers.
    pub state: MeasurerState,
    /// What it said, or what is wrong.
    pub detail: String,
    /// When that was seen.
    pub at_unix_s: u64,
}

/// Whether a measurer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasurerState {
    /// It does.
    Up,
    /// It does not.
    Down,
}

/// How far a period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodProgress {
    /// When that was so.
    pub at_unix_s: u64,
    /// Which period.
    pub period_unix_s: u64,
    /// How many relays are where.
    pub counts: Counts,
}

/// A bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// When it was made.
    pub created_unix_s: u64,
    /// Where it is.
    pub path: String,
    /// Lines of relays.
    pub lines: usize,
    /// Those of them that authorities vote by.
    pub voted: usize,
}

impl MeasurerState {
    /// As it is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// How a relay was loaded, as it is written.
#[must_use]
pub const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Transit => "transit",
        Mode::Echo => "echo",
    }
}

/// The mode of this [word](mode_word).
#[must_use]
pub fn mode_of(word: &str) -> Option<Mode> {
    [Mode::Transit, Mode::Echo].into_iter().find(|mode| mode_word(*mode) == word)
}

impl MeasurementStarted {
    /// Who, by the identity that counts.
    #[must_use]
    pub const fn relay(&self) -> RsaId {
        self.ids.rsa
    }
}

/// What has become of a relay in a period, by what was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Measurements that have begun.
    pub turns: u32,
    /// Whether there is no more to be done.
    pub is_done: bool,
    /// The turn that has to follow, if the last one said so.
    pub follows: Option<Attempt>,
    /// All measurements that have ended, as one.
    pub record: Option<Record>,
}

/// A recorded measurement: the part of it that [`Past::then`] needs.
#[derive(Clone, Debug)]
pub struct PastTurn {
    /// Its number in the period, from 1 on.
    pub number: u32,
    /// Whether it was the relay's last one in the period.
    pub is_final: bool,
    /// What has to follow.
    pub follows: Option<Attempt>,
    /// What it found; `None` if it was broken off.
    pub record: Option<Record>,
}

impl Past {
    /// With the next measurement of the same relay. One that was broken off leaves open what was open before.
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
