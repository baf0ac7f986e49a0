//! The coordinator's order to one measurer for a round, and the measurer's reports.
//!
//! Plain data. The control protocol carries these types unchanged.

use crate::account::Account;
use crate::defences::Defences;
use crate::failure::Failure;
use crate::mode::Mode;
use crate::worker_load::WorkerLoad;
use alloc::boxed::Box;
use alloc::string::String;
use core::num::NonZeroU32;
use onion::measure::Second;
use onion::measure::load::Target;
use onion::measure::protocol::Nonce;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// One measurer's task in a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundOrder {
    /// The relay to be loaded.
    pub target: Target,
    /// How the relay is loaded.
    pub mode: RoundMode,
    /// The relay's limits for a single address.
    pub defences: Defences,
    /// Sockets to the target, over all pumps; at least one.
    pub sockets: u32,
    /// Allocation *aᵢ*: the maximum rate, over all pumps.
    pub rate: Rate,
    /// Length of the round, in seconds.
    pub seconds: u32,
    /// The second in which every other socket starts; `None` if all start at once.
    pub held_back_s: Option<u32>,
    /// The first seconds, in which only the circuits that carry the load send; zero if all circuits start at once. In
    /// transit only.
    #[serde(default)]
    pub few_circuits_s: u32,
    /// The check interval: the content of one cell in this number is checked.
    pub check_one_in: NonZeroU32,
    /// Round trip to the target. If `None`, the measurer times it itself.
    pub rtt: Option<Duration>,
    /// Measurers at this one's address, itself included; at least one.
    pub sharing: u32,
    /// Time for opening sockets and circuits.
    pub setup_timeout: Duration,
    /// Longest silence of the target while it is loaded.
    pub stall_timeout: Duration,
}

/// How a relay is loaded in a round, and the data that its measurers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundMode {
    /// Through the relay, to second hops at the measurer. The relay is unaware of the measurement.
    Transit {
        /// Links authenticate as a relay's even if that has no advantage.
        always_authenticate: bool,
    },
    /// The relay returns each cell on the circuit on which it arrived. The relay has consented.
    Echo {
        /// From the order that the relay has accepted from the coordinator.
        nonce: Nonce,
    },
}

impl RoundMode {
    /// The mode, without its details.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self {
            Self::Transit { .. } => Mode::Transit,
            Self::Echo { .. } => Mode::Echo,
        }
    }

    /// The latency of a cell if the round trip to the target is `rtt`. In transit it makes the trip twice: to the
    /// relay, and from there to the measurer's second hop.
    #[must_use]
    pub fn cell_delay(&self, rtt: Duration) -> Duration {
        match self {
            Self::Transit { .. } => rtt * 2,
            Self::Echo { .. } => rtt,
        }
    }
}

/// A measurer's report on a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberReport {
    /// Sockets and circuits are open: the round can start.
    Ready {
        /// Sockets with at least one working circuit, at most the ordered number.
        sockets: u32,
    },
    /// A second is over: sums over all its pumps, and the kernel's account of its sockets, if any.
    Second(Second, Option<Box<Account>>),
    /// Its load in the round. Each measurer that finishes sends it once, before the last second.
    Load(WorkerLoad),
    /// The round ended without a result.
    Failed {
        /// The kind of failure.
        kind: FailureKind,
        /// A description.
        detail: String,
    },
}

/// What kind of failure ended a measurer's round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Too few sockets or circuits could be opened.
    Unreachable,
    /// Too few sockets or circuits stayed open.
    Closed,
    /// Nothing comes back, and the cause, relay or path, is unknown.
    Silent,
    /// The returned content is not what an honest relay makes of what was sent.
    WrongContent,
    /// The relay declines to be measured.
    Refused,
    /// The measurer failed, or the connection to it.
    Broken,
    /// The relay keeps its connections but does not relay, though its host is reachable and it had data to relay.
    Stalled,
    /// The relay reports that it receives nothing.
    #[serde(rename = "nothing_came")]
    NothingReceived,
    /// The relay has no room for the circuits of the measurement.
    NoRoom,
    /// The relay violated the protocol.
    BrokeProtocol,
    /// The relay's certificates are not valid by the measurer's clock.
    NotValidNow,
}

impl FailureKind {
    /// The failure in the coordinator's terms.
    #[must_use]
    pub const fn failure(self, detail: String) -> Failure {
        match self {
            Self::Unreachable => Failure::RelayUnreachable { detail },
            Self::Closed => Failure::RelayClosed { detail },
            Self::Stalled => Failure::RelayStalled { detail },
            Self::WrongContent => Failure::ContentCheck { detail },
            Self::Refused => Failure::ConsentRefused { detail },
            Self::Broken => Failure::MeasurerLost { detail },
            Self::Silent => Failure::LoadStopped { detail },
            Self::NothingReceived => Failure::NothingReceived { detail },
            Self::NoRoom => Failure::NoRoom { detail },
            Self::BrokeProtocol => Failure::RelayBrokeProtocol { detail },
            Self::NotValidNow => Failure::ClocksDiffer { detail },
        }
    }
}
