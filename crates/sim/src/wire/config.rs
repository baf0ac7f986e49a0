//! Choices for a world, and why it cannot go on.

use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use onion::{Duration, Instant};

/// Choices for a world.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// Time from one node to another, one way, where no other is set for the pair.
    pub latency: Duration,
    /// Longest piece in which bytes are delivered; whole, as they were sent, if `None`.
    pub piece_max_bytes: Option<NonZeroUsize>,
    /// Decides where the stream is cut into pieces.
    pub seed: u64,
    /// Bytes under way in one direction of one connection.
    pub send_buffer_bytes: usize,
    /// Bytes that a node has not taken, in one direction of one connection over a [`PathModel`]:
    /// the sender's TCP sends no more.
    ///
    /// [`PathModel`]: super::PathModel
    pub receive_buffer_bytes: usize,
    /// Time in which the domain name system answers.
    pub lookup_latency: Duration,
    /// Connections at a time; more are refused.
    pub conns_max: usize,
}

impl Default for WireConfig {
    /// Ten milliseconds one way, whole pieces, a megabyte of send buffer.
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

/// A node of a [`Wire`](super::Wire), by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) usize);

/// Why a world cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A node wants something again and again, and time does not pass.
    NeverIdle {
        /// Which node.
        node: NodeId,
        /// When.
        at: Instant,
    },
    /// Something could still happen after all the steps that were allowed.
    TooManySteps {
        /// How many were allowed.
        allowed: u64,
    },
    /// Two listeners at one address.
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

/// Why [`Wire::run_until`](super::Wire::run_until) came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The predicate holds.
    Satisfied,
    /// The deadline has come; it is the time now.
    AtDeadline,
    /// Nothing more can happen.
    Idle,
}
