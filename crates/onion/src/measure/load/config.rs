use crate::flow::QUEUE_LIMIT_CELLS;
use crate::identity::{OwnIdentity, RelayIds};
use crate::measure::protocol::Nonce;
use crate::rate::Rate;
use crate::time::Duration;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroU32;

/// The relay to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Target {
    /// Where it accepts links.
    pub address: SocketAddr,
    /// Whom its certificates must prove it to be.
    pub ids: RelayIds,
}

/// One of our own throw-away relays, where circuits end.
///
/// A relay keeps one connection to each identity, so as many landings as sockets are wanted out of
/// the target.
#[derive(Clone, Debug)]
pub struct ReturnRelay {
    /// Its throw-away identity.
    pub identity: Arc<OwnIdentity>,
    /// Where the target finds it.
    pub address: SocketAddr,
}

/// How fast connections may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pace {
    /// Connections at once, after a pause.
    pub burst: u32,
    /// Connections per second from then on.
    pub per_s: NonZeroU32,
}

/// How cells come back from the target.
#[derive(Clone)]
pub enum ReturnPath {
    /// Through a target that knows nothing of it, over circuits of two hops that end at our own
    /// landings. So any relay can be measured.
    Transit {
        /// Our own second hops; their places are the driver's
        /// [`ListenerId`](crate::node::ListenerId)s.
        landings: Vec<ReturnRelay>,
        /// Identities that the sockets prove, as a relay's would, taken in turn; none for clients'
        /// links. They must differ from the landings'.
        authenticate_as: Vec<Arc<OwnIdentity>>,
    },
    /// Back on the circuit of one hop that they came on, by a target that has accepted an order
    /// ([`measure::protocol`](crate::measure::protocol)).
    Echo {
        /// Names the measurement.
        nonce: Nonce,
        /// Seed of the Ed25519 key by which the order names this measurer.
        key_seed: [u8; 32],
    },
}

impl ReturnPath {
    pub(super) const fn is_echo(&self) -> bool {
        matches!(self, Self::Echo { .. })
    }

    /// Our own second hops, if there are any.
    pub(super) fn landings(&self) -> &[ReturnRelay] {
        match self {
            Self::Transit { landings, .. } => landings,
            Self::Echo { .. } => &[],
        }
    }

    /// Cells of a circuit's forward keystream that were used before the first one that counts.
    pub(super) const fn cells_before(&self) -> u64 {
        match self {
            Self::Transit { .. } => 1, // the one that extended it
            Self::Echo { .. } => 0,
        }
    }
}

impl fmt::Debug for ReturnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transit { landings, authenticate_as } => f
                .debug_struct("Transit")
                .field("landings", landings)
                .field("authenticate_as", authenticate_as)
                .finish(),
            // The seed is secret.
            Self::Echo { nonce, .. } => {
                f.debug_struct("Echo").field("nonce", nonce).finish_non_exhaustive()
            }
        }
    }
}

/// Sockets that begin to send later than the others, so that it shows what more of them bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// How much later than the start.
    pub after: Duration,
    /// Sockets of other pumps of the same measurer before the first of this one: of all of them, every
    /// other one is held back, beginning with the second.
    pub sockets_before: u32,
}

/// One pump's part in measuring one relay.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The relay to be measured.
    pub target: Target,
    /// How cells come back from it.
    pub return_path: ReturnPath,
    /// Sockets to the target.
    pub sockets: u32,
    /// Circuits on each of them.
    pub circuits_per_socket: u32,
    /// How fast the sockets may be opened.
    pub pace: Pace,
    /// Circuits that may be begun once more, where the target ends them for idle ones: each counts for the
    /// target's defence against clients that begin many.
    pub second_tries: u32,
    /// Length of the measurement, in seconds.
    pub seconds: u32,
    /// Sockets that begin later; `None` if all begin at once.
    pub held_back: Option<HeldBack>,
    /// Its share of the allocation a_i: no more is sent than this.
    pub rate: Rate,
    /// Cells under way on one circuit, at most. Strictly below the relay's queue limit.
    pub window_cap_cells: u32,
    /// One cell in so many has its content checked.
    pub check_one_in: NonZeroU32,
    /// Time for opening sockets and circuits.
    pub setup_timeout: Duration,
    /// Longest silence of the target while it is loaded.
    pub stall_timeout: Duration,
    /// The time, in seconds since 1970, for the dates on certificates.
    pub unix_time_s: u64,
}

impl LoadConfig {
    /// Cells under way on one circuit, at most. A target that takes part has the limit of our own
    /// relays, whatever the consensus says of stock ones.
    pub(super) fn window_cells(&self) -> u32 {
        const OWN_CAP: u32 = QUEUE_LIMIT_CELLS - QUEUE_LIMIT_CELLS / 10 - 1;
        let own = if self.return_path.is_echo() { OWN_CAP } else { u32::MAX };
        self.window_cap_cells.min(own)
    }
}
