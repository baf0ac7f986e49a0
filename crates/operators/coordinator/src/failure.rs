//! Reasons why a measurement ended without an estimate, and their attribution.

use alloc::string::String;
use core::fmt;
use onion::Duration;
use serde::{Deserialize, Serialize};

/// The component to investigate after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The relay, or the path to it.
    Relay,
    /// A measurer, or the path to it.
    Measurer,
    /// The operator's configuration, including the clocks, or a permission that the operator must give.
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
/// The text does not name the measurer: [`Outcome::Failed`](crate::Outcome) does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A returned cell has different content than the relay's key yields (§4.1).
    #[error("the relay returned wrong content: {detail}")]
    ContentCheck {
        /// The cell, and the difference.
        detail: String,
    },
    /// The relay cannot be reached, or the handshake with it fails.
    #[error("the relay cannot be reached: {detail}")]
    RelayUnreachable {
        /// The attempt, and the answer.
        detail: String,
    },
    /// This measurer cannot reach the relay, and another one can. Either the path between them or this measurer is
    /// broken.
    #[error("another measurer reaches the relay, and this one does not: {detail}")]
    OutOfReach {
        /// The attempt, and the answer.
        detail: String,
    },
    /// The relay closed its connections.
    #[error("the relay closed the connection: {detail}")]
    RelayClosed {
        /// The reason that it gave.
        detail: String,
    },
    /// The relay destroyed a measurement circuit.
    #[error("the relay destroyed the circuit: {detail}")]
    CircuitDestroyed {
        /// The reason it gave.
        detail: String,
    },
    /// The relay has no room for the circuits of the measurement: its memory is full. This state is temporary, so the
    /// relay is measured again, and its last estimate remains valid.
    #[error("the relay has no room for the circuits of the measurement: {detail}")]
    NoRoom {
        /// The number of missing circuits.
        detail: String,
    },
    /// The relay keeps its connections but does not relay, though its host is reachable and the relay had data to
    /// relay.
    #[error("the relay stalled: {detail}")]
    RelayStalled {
        /// For how long.
        detail: String,
    },
    /// Fewer than half of the sockets over all measurers are open, at the start or later (§4.1).
    #[error("only {open} of {assigned} sockets are open, under half")]
    TooFewSockets {
        /// Open sockets, over all measurers.
        open: u32,
        /// Assigned sockets, over all measurers.
        assigned: u32,
    },
    /// The median second is empty. An estimate of zero would be meaningless.
    #[error("the relay relayed nothing in {idle} of {seconds} seconds")]
    RelayedNothing {
        /// Seconds without a byte.
        idle: u32,
        /// Seconds of the round.
        seconds: u32,
    },
    /// The relay did not report in time how much client traffic it relayed. Only in echo mode.
    #[error("the relay did not report its client traffic of second {second}")]
    ClientReportMissing {
        /// Counted from zero.
        second: u32,
    },
    /// A measurer's count of the bytes that it got back differs from the relay's count of the bytes sent to it. Only in
    /// echo mode.
    #[serde(rename = "words_differ")]
    #[error(
        "the measurer reports that {returned_bytes} bytes came back, and the relay that it sent {sent_bytes}: one of \
         them is wrong"
    )]
    CountsDiffer {
        /// The measurer's count, over the whole round.
        returned_bytes: u64,
        /// The relay's count.
        sent_bytes: u64,
    },
    /// The relay sent an invalid report. Only in echo mode.
    #[error("the relay {0}")]
    RelayViolation(Violation),
    /// The relay violated the protocol.
    #[error("the relay broke the rules: {detail}")]
    RelayBrokeProtocol {
        /// The violation.
        detail: String,
    },

    /// The measurer, or the connection to it, is lost.
    #[error("the measurer was lost: {detail}")]
    MeasurerLost {
        /// How the loss was detected.
        detail: String,
    },
    /// The measurer did not report in time that it is ready.
    #[error("the measurer was not ready within {timeout:?}")]
    NotReady {
        /// The timeout.
        timeout: Duration,
    },
    /// The measurer did not report a second in time. The second is not counted as zero.
    #[error("the measurer did not report second {second}")]
    SecondMissing {
        /// Counted from zero.
        second: u32,
    },
    /// The measurer got nothing back in the whole round, and without its share the load is too small for a conclusive
    /// result.
    #[error("the measurer got nothing back, and the others are too few without it")]
    GotNothing,
    /// Nothing comes back, and no measurer has shown that the relay had data to send back *and* that its host answered
    /// for long enough. Either the path broke, or the measurers' machine was suspended. If a measurer reports this, a
    /// [`Measurement`](crate::Measurement) turns it into [`RelayStalled`](Self::RelayStalled) or
    /// [`OutOfReach`](Self::OutOfReach) where the seconds of that measurer or of the others show which one it is.
    #[error(
        "the load stopped: the path to the relay broke, or the measurers' machine was suspended, since no measurer shows \
         that the relay was reachable and had data to send back: {detail}"
    )]
    LoadStopped {
        /// How it was detected.
        detail: String,
    },
    /// The relay reports that it receives nothing. A [`Measurement`](crate::Measurement) replaces this by a more
    /// specific failure where the reports allow it. Only in echo mode.
    #[serde(rename = "nothing_came")]
    #[error("the relay reports that it receives nothing: {detail}")]
    NothingReceived {
        /// The report.
        detail: String,
    },
    /// The measurer sent an invalid report.
    #[error("the measurer {0}")]
    MeasurerViolation(Violation),

    /// Neither the relay nor the configuration permits a measurement.
    #[error("measuring this relay is not permitted: {detail}")]
    ConsentRefused {
        /// How to opt in.
        detail: String,
    },

    /// The relay consents, but not now: the coordinator has used up its measurements of the period, or another one is
    /// running. This shows nothing about the relay's capacity, and its last estimate remains valid.
    #[error("the relay is not to be measured now: {detail}")]
    RelayNotNow {
        /// The relay's answer.
        detail: String,
    },

    /// The relay's clock and ours differ: its certificates are not valid by our clock, or our order is not by its clock. Either may be
    /// wrong. This shows nothing about the relay's capacity. A relay can pretend it, so it is a decline.
    #[error("the relay's clock and ours differ, or its certificates are old: {detail}")]
    ClocksDiffer {
        /// The certificate, or the relay's answer.
        detail: String,
    },

    /// The coordinator was asked to stop.
    #[error("the measurement was cancelled")]
    Cancelled,
    /// The relay's report on its clients did not arrive, though measurers were still served, and its host does not
    /// answer the coordinator either. Only in echo mode.
    #[error("the coordinator can no longer reach the relay, but the measurers can: {detail}")]
    CutOff {
        /// The attempt.
        detail: String,
    },
    /// A failure of the coordinator's own machine.
    #[error("the coordinator cannot continue: {detail}")]
    CoordinatorBroken {
        /// The failure.
        detail: String,
    },
    /// A bug in the shell that drives the measurement.
    #[error("bug in the coordinator: {detail}")]
    Internal {
        /// The bug.
        detail: String,
    },
}

impl Failure {
    /// Whether the relay consents but not now. The result of an earlier round remains valid.
    #[must_use]
    pub const fn is_not_now(&self) -> bool {
        matches!(self, Self::RelayNotNow { .. })
    }

    /// Whether it shows something about the relay: that it is unreachable, violates the protocol or refuses to be
    /// measured. Other failures leave what is known of the relay unchanged.
    #[must_use]
    pub const fn is_about_relay(&self) -> bool {
        match self.blame() {
            Blame::Relay => !matches!(self, Self::NoRoom { .. }),
            Blame::Configuration => {
                !self.is_not_now() && !matches!(self, Self::ClocksDiffer { .. })
            }
            Blame::Measurer | Blame::Us => false,
        }
    }

    /// Whether it is attributed to a measurer, yet the relay can cause it, by its reports or by serving this measurer
    /// differently from others. The measurer is then left out for this relay only.
    #[must_use]
    pub const fn may_be_relays_doing(&self) -> bool {
        matches!(
            self,
            Self::CountsDiffer { .. }
                | Self::GotNothing
                | Self::OutOfReach { .. }
                | Self::LoadStopped { .. }
                | Self::NothingReceived { .. }
        )
    }

    /// Whether the relay can cause it at no other cost than to have no new estimate. It reports that it is busy, that
    /// the coordinator's measurements are used up or that it has no room, shows old certificates, drops the packets of measurers, or it
    /// makes a measurer look wrong. This occasionally happens to an honest relay. See
    /// [`HistoryPolicy::declines_apart`](crate::HistoryPolicy::declines_apart) for the cost of several in a row.
    #[must_use]
    pub const fn is_decline(&self) -> bool {
        self.is_not_now()
            || self.may_be_relays_doing()
            || matches!(self, Self::CutOff { .. } | Self::NoRoom { .. } | Self::ClocksDiffer { .. })
    }

    /// Whether it is a decline that a broken path can cause as well.
    #[must_use]
    pub const fn may_be_path(&self) -> bool {
        matches!(
            self,
            Self::CutOff { .. }
                | Self::LoadStopped { .. }
                | Self::OutOfReach { .. }
                | Self::NothingReceived { .. }
        )
    }

    /// The component to investigate.
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
            | Self::NothingReceived { .. }
            | Self::OutOfReach { .. }
            // The relay may be wrong. A measurement by another measurer would show it.
            | Self::CountsDiffer { .. }
            | Self::MeasurerViolation(_) => Blame::Measurer,
            Self::ConsentRefused { .. }
            | Self::RelayNotNow { .. }
            | Self::ClocksDiffer { .. } => Blame::Configuration,
            Self::Cancelled
            | Self::CutOff { .. }
            | Self::CoordinatorBroken { .. }
            | Self::Internal { .. } => Blame::Us,
        }
    }
}

/// An invalid report of a measurer, or of the relay in echo mode. Seconds count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// The second was reported before.
    #[error("reported second {second} twice")]
    DuplicateSecond {
        /// The second.
        second: u32,
    },
    /// The round has no such second.
    #[error("reported second {second} of a round of {seconds} seconds")]
    NoSuchSecond {
        /// The second.
        second: u32,
        /// The number of seconds.
        seconds: u32,
    },
    /// The second had not started.
    #[error("reported second {second} before it began")]
    Premature {
        /// The second.
        second: u32,
    },
    /// The sender has no part in this round.
    #[error("reported on a round in which it has no part")]
    NotAssigned,
    /// The round has not been ordered yet.
    #[error("reported on round {reported} during round {current}")]
    NoSuchRound {
        /// The reported round.
        #[serde(rename = "told")]
        reported: u32,
        /// The current round.
        current: u32,
    },
    /// It reported twice in one round that it is ready.
    #[error("reported twice that it is ready")]
    ReadyTwice,
    /// It got cells back and checked the content of none.
    #[error("got {cells} cells back and checked none of them")]
    Unchecked {
        /// The number of returned cells.
        cells: u64,
    },
    /// More bytes came back than it was assigned to send.
    #[error(
        "got {bytes} bytes back by the end of second {second}, of {allowed} that it may have sent"
    )]
    TooMuch {
        /// The latest second that it has reported.
        second: u32,
        /// The bytes that it got back in all reported seconds.
        bytes: u64,
        /// The bytes that it may have sent by then.
        allowed: u64,
    },
    /// It opened more sockets than it was assigned.
    #[error("opened {open} sockets where {assigned} were assigned")]
    TooManySockets {
        /// Its open sockets.
        open: u32,
        /// Its assigned sockets.
        assigned: u32,
    },
}
