use crate::identity::{OwnIdentity, RelayIds};
use crate::rate::Rate;
use crate::time::Duration;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::num::NonZeroU32;

/// The relay to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub struct Landing {
    /// Its throw-away identity.
    pub identity: Arc<OwnIdentity>,
    /// Where the target finds it.
    pub address: SocketAddr,
}

/// How fast connections may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Connections at once, after a pause.
    pub burst: u32,
    /// Connections per second from then on.
    pub per_s: NonZeroU32,
}

/// One measurer's part in a transit measurement.
#[derive(Clone, Debug)]
pub struct TransitConfig {
    /// The relay to be measured.
    pub target: Target,
    /// Our own second hops; their places are the driver's [`ListenerId`](crate::node::ListenerId)s.
    pub landings: Vec<Landing>,
    /// Sockets to the target.
    pub sockets: u32,
    /// Circuits on each of them.
    pub circuits_per_socket: u32,
    /// Identities that the sockets prove, as a relay's would, taken in turn; none for clients'
    /// links. They must differ from the landings'.
    pub authenticate_as: Vec<Arc<OwnIdentity>>,
    /// How fast the sockets may be opened.
    pub pace: Pace,
    /// Length of the measurement, in seconds.
    pub seconds: u32,
    /// Allocation a_i: no more is sent than this.
    pub rate: Rate,
    /// Cells under way on one circuit, at most. Strictly below the relay's queue limit.
    pub window_cap_cells: u32,
    /// One cell in so many has its content checked.
    pub check_one_in: NonZeroU32,
    /// Time for opening sockets and circuits.
    pub setup_timeout: Duration,
    /// Longest silence of the target while it is loaded.
    pub stall_timeout: Duration,
    /// Now, in seconds since 1970, for the dates on certificates.
    pub unix_time_s: u64,
}
