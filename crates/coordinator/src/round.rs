//! What a coordinator orders of one measurer in a round, and what the measurer reports.
//!
//! Plain data. The control protocol carries these types as they are.

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

/// What one measurer has to do in a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundOrder {
    /// The relay to be loaded.
    pub target: Target,
    /// How the relay is loaded.
    pub mode: RoundMode,
    /// What the relay lets one address do.
    pub defences: Defences,
    /// Sockets to the target, over all pumps; at least one.
    pub sockets: u32,
    /// Allocation *aᵢ*: no more is sent than this, over all pumps.
    pub rate: Rate,
    /// Length of the round, in seconds.
    pub seconds: u32,
    /// The second with which every other socket begins; `None` if all begin at once.
    pub held_back_s: Option<u32>,
    /// One cell in so many has its content checked.
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

/// How a relay is loaded in a round, with what its measurers need for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundMode {
    /// Through the relay, to second hops at the measurer. The relay does not know of the measurement.
    Transit {
        /// Links authenticate as a relay's even where nothing is gained by it.
        always_authenticate: bool,
    },
    /// The relay returns each cell on the circuit on which it arrived. The relay has agreed to that.
    Echo {
        /// Of the order that the relay has accepted from the coordinator.
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

    /// How long a cell is under way where the round trip to the target is `rtt`. In transit it makes the trip twice: to the
    /// relay, and from there to the measurer's second hop.
    #[must_use]
    pub fn cell_delay(&self, rtt: Duration) -> Duration {
        match self {
            Self::Transit { .. } => rtt * 2,
            Self::Echo { .. } => rtt,
        }
    }
}

/// What a measurer reports of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberReport {
    /// Sockets and circuits are open: the round can start.
    Ready {
        /// Sockets with at least one circuit that works, at most as many as were ordered.
        sockets: u32,
    },
    /// A second is over: sums over all its pumps; and what the kernels say of its sockets, if they do.
    Second(Second, Option<Box<Account>>),
    /// How busy it was in the round. Comes before the last second, once from each that has finished.
    Load(WorkerLoad),
    /// The round ended without a result.
    Failed {
        /// What kind of failure.
        kind: FailureKind,
        /// What happened, in words.
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
    /// Nothing comes back any more, and nothing shows whether that is the relay or the path.
    Silent,
    /// What came back is not what an honest relay makes of what was sent.
    WrongContent,
    /// The relay says that it will not be measured.
    Refused,
    /// The measurer failed, or the connection to it.
    Broken,
    /// The relay keeps its connections but does not relay, though its host is in reach and it had something to relay.
    Stalled,
    /// The relay says that nothing comes to it.
    NothingCame,
    /// The relay has no room for the circuits of the measurement.
    NoRoom,
    /// The relay broke the rules of the protocol.
    BrokeProtocol,
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
            Self::NothingCame => Failure::NothingCame { detail },
            Self::NoRoom => Failure::NoRoom { detail },
            Self::BrokeProtocol => Failure::RelayBrokeProtocol { detail },
        }
    }
}
