//! A measurer as its coordinator sees it, wherever it runs.

use crate::defences::Defences;
use coordinator::{Account, Failure};
use onion::measure::Second;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use crate::load::WorkerLoad;
pub use onion::measure::load::Target;
pub use onion::measure::protocol::{MeasurerKey, Nonce};

/// One measurer: a thread or several of this process, or a machine somewhere else.
///
/// A round goes `prepare`, [`MemberReport::Ready`], `start`, then a [`MemberReport::Second`] for each
/// second; a [`MemberReport::Failed`] ends it at any time. No command waits for the target or for the
/// network: what comes of it is reported.
pub trait Member: Send {
    /// Its public key.
    fn key(&self) -> MeasurerKey;

    /// Where the target sees it, as far as known; `None` for one of this very machine.
    ///
    /// Members at one address share what a relay lets one address do.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// Does ahead of time what takes long and can be done before a round's clock runs, such as making
    /// keys. `order` is the round as it will most likely be. May take seconds, and ends early if
    /// `cancel` is set.
    ///
    /// # Errors
    /// [`MemberError`]: it cannot measure.
    fn anticipate(&mut self, order: &RoundOrder, cancel: &AtomicBool) -> Result<(), MemberError> {
        let (_, _) = (order, cancel);
        Ok(())
    }

    /// Opens sockets and circuits for a round and sends nothing yet; what follows comes as reports.
    /// Replaces an earlier round, of which no report comes any more once this has returned.
    ///
    /// # Errors
    /// [`MemberError`]: it cannot measure.
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError>;

    /// Sends from `delay` from now on; ignored unless it has reported that it is ready. All members of a
    /// round begin together: one elsewhere takes the way of the command off the delay.
    fn start(&mut self, delay: Duration);

    /// Ends the round, if one is on: all connections get closed.
    fn stop(&mut self);
}

/// What one measurer has to do in a round. Plain data: the control protocol carries it to measurers on other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundOrder {
    /// The relay to be loaded.
    pub target: Target,
    /// How cells come back from it.
    pub way_back: RoundWayBack,
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

/// How cells come back from the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundWayBack {
    /// Through it, to second hops at the measurer; the relay knows nothing of it.
    Transit {
        /// Links authenticate as a relay's even where nothing is gained by it.
        always_authenticate: bool,
    },
    /// Back on the circuit that they came on, by the relay's consent.
    Echo {
        /// Of the order that the relay has accepted from the coordinator.
        nonce: Nonce,
    },
}

impl RoundWayBack {
    /// How long a cell is under way where the round trip to the target is `rtt`: in transit it travels
    /// twice, to the relay and from there to the landing.
    #[must_use]
    pub fn way(&self, rtt: Duration) -> Duration {
        match self {
            Self::Transit { .. } => rtt * 2,
            Self::Echo { .. } => rtt,
        }
    }
}

/// Where a round's reports go: cheap to clone, callable from any thread, quick to return. It must not
/// command the member that calls it.
pub type Reports = Arc<dyn Fn(MemberReport) + Send + Sync>;

/// What a measurer reports of a round. Plain data: the control protocol carries it from measurers on other hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberReport {
    /// Sockets and circuits stand: it can start.
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
    /// The measurer itself, or the way to it, is broken.
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

/// A member that cannot measure: its machine, its configuration or the way to it is to blame, never
/// the target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemberError(pub String);

impl MemberError {
    /// What another error says.
    #[must_use]
    pub fn of(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}
