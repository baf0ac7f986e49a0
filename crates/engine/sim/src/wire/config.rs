//! The configuration of a wire, and its errors.

use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use onion::{Duration, Instant};

/// The configuration of a wire.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// The one-way latency between nodes, unless one is set for the pair.
    pub latency: Duration,
    /// Maximum length of a delivered piece; `None` delivers writes as they were.
    pub piece_max_bytes: Option<NonZeroUsize>,
    /// The seed of the segmentation and of losses.
    pub seed: u64,
    /// The send buffer of each direction of a connection, in bytes.
    pub send_buffer_bytes: usize,
    /// The receive buffer of each direction of a connection over a [`PathModel`], in bytes.
    ///
    /// [`PathModel`]: super::PathModel
    pub receive_buffer_bytes: usize,
    /// The time of a DNS query.
    pub lookup_latency: Duration,
    /// Maximum number of connections; more are refused.
    pub conns_max: usize,
}

impl Default for WireConfig {
    /// Ten milliseconds one way, no segmentation, send buffers of a megabyte.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(10),
            piece_max_bytes: None,
            seed: 0,
            send_buffer_bytes: 1 << 20,
            receive_buffer_bytes: 1 << 20,
            lookup_latency: Duration::from_millis(20),
            conns_max: 65_536,
        }
    }
}

/// A node of a [`Wire`](super::Wire), numbered in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) usize);

/// Why a wire cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A node acts endlessly while time does not pass.
    NeverIdle {
        /// The node.
        node: NodeId,
        /// The time.
        at: Instant,
    },
    /// There are still events after all permitted steps.
    TooManySteps {
        /// The permitted number.
        allowed: u64,
    },
    /// Two listeners with one address.
    AddressTaken(SocketAddr),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverIdle { node: NodeId(node), at } => {
                write!(f, "node {node} is never idle at {at}")
            }
            Self::TooManySteps { allowed } => write!(f, "not idle after {allowed} steps"),
            Self::AddressTaken(address) => write!(f, "two listeners at {address}"),
        }
    }
}

impl core::error::Error for WireError {}

/// Why [`Wire::run_until`](super::Wire::run_until) returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The predicate is true.
    Satisfied,
    /// The deadline has been reached; it is the current time.
    AtDeadline,
    /// There are no more events.
    Idle,
}
