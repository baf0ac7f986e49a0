//! Why a measurement ended without an estimate, and who is to blame.

use alloc::string::String;
use core::fmt;
use onion::Duration;
use serde::{Deserialize, Serialize};

/// Who is to be looked at after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The relay, or the way to it.
    Relay,
    /// A measurer, or the way to it.
    Measurer,
    /// What the operator configured, or must permit.
    Configuration,
    /// The coordinator itself.
    Us,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "relay",
            Self::Measurer => "measurer",
            Self::Configuration => "configuration",
            Self::Us => "coordinator",
        })
    }
}

/// Why a measurement failed. A failure is never turned into a low estimate (§4.1).
///
/// The text does not say which measurer it was: [`Outcome::Failed`](crate::Outcome) does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A cell came back with other content than the relay's key makes of it (§4.1).
    #[error("the relay returned wrong content: {detail}")]
    ContentCheck {
        /// Which cell, and how it differs.
        detail: String,
    },
    /// The relay can't be reached, or the handshake with it fails.
    #[error("the relay cannot be reached: {detail}")]
    RelayUnreachable {
        /// What was tried, and the answer.
        detail: String,
    },
    /// This measurer can't reach the relay, and another one does: it is the path between them that is broken, or this measurer.
    #[error("another measurer reaches the relay, and this one does not: {detail}")]
    OutOfReach {
        /// What was tried, and the answer.
        detail: String,
    },
    /// The relay closed its connections.
    #[error("the relay closed the connection: {detail}")]
    RelayClosed {
        /// What it said.
        detail: String,
    },
    /// The relay destroyed a measurement circuit.
    #[error("the relay destroyed the circuit: {detail}")]
    CircuitDestroyed {
        /// The reason it gave.
        detail: String,
    },
    /// The relay has no room for the circuits of the measurement: its memory is full. That is a state that passes, so the relay is
    /// measured again, and its last estimate still holds.
    #[error("the relay has no room for the circuits of the measurement: {detail}")]
    NoRoom {
        /// How many were missing.
        detail: String,
    },
    /// The relay keeps its connections but does not relay, though its host is in reach and it had something to relay.
    #[error("the relay stalled: {detail}")]
    RelayStalled {
        /// For how long.
        detail: String,
    },
    /// Under half of the sockets over all measurers are open, at the start or later (§4.1).
    #[error("only {open} of {assigned} sockets are open, under half")]
    TooFewSockets {
        /// Sockets open over all measurers.
        open: u32,
        /// Sockets asked for over all measurers.
        assigned: u32,
    },
    /// The median second is empty. An estimate of zero would be no estimate.
    #[error("the relay relayed nothing in {idle} of {seconds} seconds")]
    RelayedNothing {
        /// Seconds without a byte.
        idle: u32,
        /// Seconds of the round.
        seconds: u32,
    },
    /// The relay did not say in time how much client traffic it relayed. Only in echo mode.
    #[error("the relay did not report its client traffic of second {second}")]
    ClientReportMissing {
        /// Counted from zero.
        second: u32,
    },
    /// What a measurer says that came back to it is not what the relay says that it sent to it. Only in echo mode.
    #[error(
        "the measurer says that {returned_bytes} bytes came back, and the relay that it sent {sent_bytes}: one of them \
         is wrong"
    )]
    WordsDiffer {
        /// By the measurer, over the whole round.
        returned_bytes: u64,
        /// By the relay.
        sent_bytes: u64,
    },
    /// The relay said what it must not say. Only in echo mode.
    #[error("the relay {0}")]
    RelayViolation(Violation),
    /// The relay broke the rules of the protocol.
    #[error("the relay broke the rules: {detail}")]
    RelayBrokeProtocol {
        /// Which.
        detail: String,
    },

    /// The measurer, or the connection to it, is gone.
    #[error("the measurer was lost: {detail}")]
    MeasurerLost {
        /// How that was noticed.
        detail: String,
    },
    /// The measurer did not say in time that it is ready.
    #[error("the measurer was not ready within {timeout:?}")]
    NotReady {
        /// The time it had.
        timeout: Duration,
    },
    /// The measurer did not report a second in time. It is not counted as zero.
    #[error("the measurer did not report second {second}")]
    SecondMissing {
        /// Counted from zero.
        second: u32,
    },
    /// The measurer got nothing back in the whole round, and without its share the others' load is
    /// too small for the result to be conclusive.
    #[error("the measurer got nothing back, and the others are too few without it")]
    GotNothing,
    /// Nothing comes back, and nobody has seen that the relay had something to send back *and* that its host answered for long enough: the path to it broke, or the measurers' machine
    /// stood still. What a measurer says so, a [`Measurement`](crate::Measurement) makes [`RelayStalled`](Self::RelayStalled) or [`OutOfReach`](Self::OutOfReach) of where that measurer's
    /// seconds, or the others', show it.
    #[error(
        "the load stopped: the path to the relay broke, or the measurers' machine stood still, for nobody shows that the relay was in reach and had anything to send back: {detail}"
    )]
    LoadStopped {
        /// What it was noticed by.
        detail: String,
    },
    /// The relay says that nothing comes to it. A [`Measurement`](crate::Measurement) makes something else of it, by what is known. Only in echo mode.
    #[error("by the relay's word, nothing comes to it: {detail}")]
    NothingCame {
        /// What it said.
        detail: String,
    },
    /// The measurer said what it must not say.
    #[error("the measurer {0}")]
    MeasurerViolation(Violation),

    /// Nobody allowed to flood this relay.
    #[error("measuring this relay is not permitted: {detail}")]
    ConsentRefused {
        /// How to opt in.
        detail: String,
    },

    /// The relay consents, but not now: we have had our measurements of its period, or another one is
    /// on. It says nothing about the relay, whose last estimate still holds.
    #[error("the relay is not to be measured now: {detail}")]
    RelayNotNow {
        /// What it said.
        detail: String,
    },

    /// The coordinator was told to stop.
    #[error("the measurement was cancelled")]
    Cancelled,
    /// The relay's word on its clients did not come, though measurers were served on, and its host does not answer the coordinator either. Only in echo mode.
    #[error("the coordinator does not reach the relay any more, and the measurers do: {detail}")]
    CutOff {
        /// What was tried.
        detail: String,
    },
    /// The coordinator's own machine fails it.
    #[error("the coordinator cannot go on: {detail}")]
    CoordinatorBroken {
        /// How.
        detail: String,
    },
    /// The shell that drives the measurement made a mistake.
    #[error("mistake of the coordinator: {detail}")]
    Internal {
        /// Which.
        detail: String,
    },
}

impl Failure {
    /// Whether the relay consents but not now: what an earlier round found out stands.
    #[must_use]
    pub const fn is_not_now(&self) -> bool {
        matches!(self, Self::RelayNotNow { .. })
    }

    /// Whether it tells something of the relay: that it is not to be had, breaks rules, or will not be
    /// measured. What somebody else failed leaves what is known of the relay as it was.
    #[must_use]
    pub const fn is_about_relay(&self) -> bool {
        match self.blame() {
            Blame::Relay => !matches!(self, Self::NoRoom { .. }),
            Blame::Configuration => !self.is_not_now(),
            Blame::Measurer | Blame::Us => false,
        }
    }

    /// Whether it is put down to a measurer, and yet the relay can bring it about: by what it says, or by serving the measurer
    /// in another way than others. It takes the measurer out for this relay, and not for others.
    #[must_use]
    pub const fn may_be_relays_doing(&self) -> bool {
        matches!(
            self,
            Self::WordsDiffer { .. }
                | Self::GotNothing
                | Self::OutOfReach { .. }
                | Self::LoadStopped { .. }
                | Self::NothingCame { .. }
        )
    }

    /// Whether the relay can bring it about at no other cost than to have no new estimate: it says that it is busy, or that we have used up our
    /// measurements, that it has no room, drops the packets of whoever measures it, or makes a measurer look wrong. An honest relay has that happen to it now and
    /// then. See [`HistoryPolicy::declines_apart`](crate::HistoryPolicy::declines_apart) for what several in a row cost.
    #[must_use]
    pub const fn is_decline(&self) -> bool {
        self.is_not_now()
            || self.may_be_relays_doing()
            || matches!(self, Self::CutOff { .. } | Self::NoRoom { .. })
    }

    /// Whether it is a decline that a broken path can bring about, too.
    #[must_use]
    pub const fn may_be_path(&self) -> bool {
        matches!(
            self,
            Self::CutOff { .. }
                | Self::LoadStopped { .. }
                | Self::OutOfReach { .. }
                | Self::NothingCame { .. }
        )
    }

    /// Who is to be looked at.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match self {
            Self::ContentCheck { .. }
            | Self::RelayUnreachable { .. }
            | Self::RelayClosed { .. }
            | Self::CircuitDestroyed { .. }
            | Self::NoRoom { .. }
            | Self::RelayStalled { .. }
            | Self::TooFewSockets { .. }
            | Self::RelayedNothing { .. }
            | Self::ClientReportMissing { .. }
            | Self::RelayViolation(_)
            | Self::RelayBrokeProtocol { .. } => Blame::Relay,
            Self::MeasurerLost { .. }
            | Self::NotReady { .. }
            | Self::SecondMissing { .. }
            | Self::GotNothing
            | Self::LoadStopped { .. }
            | Self::NothingCame { .. }
            | Self::OutOfReach { .. }
            // It may be the relay that is wrong. With another measurer that would show.
            | Self::WordsDiffer { .. }
            | Self::MeasurerViolation(_) => Blame::Measurer,
            Self::ConsentRefused { .. } | Self::RelayNotNow { .. } => Blame::Configuration,
            Self::Cancelled
            | Self::CutOff { .. }
            | Self::CoordinatorBroken { .. }
            | Self::Internal { .. } => Blame::Us,
        }
    }
}

/// What a measurer, or the relay in echo mode, must not say. Seconds count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// The same second again.
    #[error("reported second {second} twice")]
    DuplicateSecond {
        /// Which.
        second: u32,
    },
    /// A second that the round does not have.
    #[error("reported second {second} of a round of {seconds} seconds")]
    NoSuchSecond {
        /// Which.
        second: u32,
        /// How many there are.
        seconds: u32,
    },
    /// A second that had not even begun.
    #[error("reported second {second} before it began")]
    Premature {
        /// Which.
        second: u32,
    },
    /// It has no part in this round.
    #[error("spoke in a round in which it has no part")]
    NotAssigned,
    /// A round that has not been ordered yet.
    #[error("spoke of round {told} in round {current}")]
    NoSuchRound {
        /// The round it spoke of.
        told: u32,
        /// The round that is on.
        current: u32,
    },
    /// Ready again in the same round.
    #[error("said twice that it is ready")]
    ReadyTwice,
    /// It got cells back, and looked at the content of none.
    #[error("got {cells} cells back and checked none of them")]
    Unchecked {
        /// How many came back.
        cells: u64,
    },
    /// More came back than it was assigned to send.
    #[error(
        "got {bytes} bytes back by the end of second {second}, of {allowed} that it may have sent"
    )]
    TooMuch {
        /// The latest second that it has reported.
        second: u32,
        /// What it got in all seconds reported so far.
        bytes: u64,
        /// What it may have sent by then.
        allowed: u64,
    },
    /// More sockets than it was assigned.
    #[error("opened {open} sockets where {assigned} were assigned")]
    TooManySockets {
        /// Sockets it has open.
        open: u32,
        /// Sockets it may have open.
        assigned: u32,
    },
}
