//! What is written.

use coordinator::{Counts, Mode, PastEstimate, PathSeen, Record, Suspicion, Turn};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use std::net::SocketAddr;

/// One thing that is recorded. Written twice, it is there once.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A period begins, or went on after a pause.
    Period(Period),
    /// A consensus was seen, and what is to be done with its relays.
    Seen(Seen),
    /// A relay's turn begins.
    Begun(Begun),
    /// It has ended. It need not have been said that it began.
    Ended(Box<Closed>),
    /// An estimate that comes from elsewhere, such as from an old bandwidth file. It counts if it is newer than what is
    /// known.
    Imported(RelayIds, String, PastEstimate),
    /// The team's measurers, by their keys: others are of it no more.
    Team(Vec<String>),
    /// A measurer's state, if it has changed.
    Measurer(MeasurerHealth),
    /// How far the period is.
    Progress(Progress),
    /// A bandwidth file was written.
    Issued(Issue),
    /// Which relays may share a machine, by all that is known now: in place of what was suspected before.
    Suspicions(Vec<Suspicion>),
}

/// A period of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
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
pub struct Seen {
    /// From when on it is valid: by this it is known.
    pub valid_after_unix_s: u64,
    /// When it was seen.
    pub at_unix_s: u64,
    /// Where it comes from, in words.
    pub source: String,
    /// Authorities whose signatures hold, if any were verified.
    pub signers: Option<u32>,
    /// All its relays.
    pub relays: Vec<Sighting>,
}

/// A relay in a consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
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
pub struct Begun {
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
pub struct Closed {
    /// Which one.
    pub begun: Begun,
    /// What came of it.
    pub record: Record,
    /// The turn that has to follow, if somebody is to see to that.
    pub follows: Option<Turn>,
    /// Whether that was all about the relay in the period.
    pub is_final: bool,
    /// What measurers have seen of their paths to the relay. The newest counts.
    pub paths: Vec<MeasurerPath>,
}

/// What a measurer has seen of its path to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerPath {
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
pub struct Progress {
    /// When that was so.
    pub at_unix_s: u64,
    /// Which period.
    pub period_unix_s: u64,
    /// How many relays are where.
    pub counts: Counts,
}

/// A bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
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

pub(crate) fn mode_of(word: &str) -> Option<Mode> {
    [Mode::Transit, Mode::Echo].into_iter().find(|mode| mode_word(*mode) == word)
}

impl Begun {
    /// Who, by the identity that counts.
    #[must_use]
    pub const fn relay(&self) -> RsaId {
        self.ids.rsa
    }
}
