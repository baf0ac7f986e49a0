use crate::cell::msg::EndReason;
use crate::circuit::CircuitError;
use crate::flow::control::FlowError;
use crate::node::CloseCause;
use crate::time::{Duration, Instant};
use crate::tunnel::conflux::ConfluxError;
use alloc::string::String;
use core::fmt;

/// A circuit of a [`Client`](super::Client); numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CircuitNumber(pub(super) u32);

/// A stream of a [`Client`](super::Client); numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamNumber(pub(super) u32);

/// Something that a client reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A circuit is open, or a set is: all its legs are linked or lost.
    Built {
        /// The circuit.
        circuit: CircuitNumber,
        /// Time since its first cell; for a set, since it was requested.
        took: Duration,
    },
    /// A circuit is lost or could not be built. There are no events for its streams.
    Lost {
        /// The circuit.
        circuit: CircuitNumber,
        /// The reason.
        cause: Loss,
    },
    /// A circuit of a set is open and will be linked.
    LegBuilt {
        /// The set.
        circuit: CircuitNumber,
        /// The leg's number.
        leg: u8,
        /// Time since its first cell.
        took: Duration,
    },
    /// A leg of a set is lost or could not be built. The set continues, or waits for its other legs.
    LegLost {
        /// The set.
        circuit: CircuitNumber,
        /// The leg's number.
        leg: u8,
        /// The reason.
        cause: Loss,
    },
    /// A stream is closed.
    Over {
        /// The stream.
        stream: StreamNumber,
        /// The outcome.
        outcome: Outcome,
        /// Its statistics.
        figures: Figures,
    },
}

/// Why a circuit is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The link to the first hop was closed, or could not be established.
    Link(CloseCause),
    /// The first hop does not speak the link protocol.
    Channel(String),
    /// A relay destroyed the circuit, or violated the protocol.
    Circuit(CircuitError),
    /// The leg has timed out: others of its set wait for its messages.
    Silent,
    /// The last hop violated the rules of flow control.
    Flow(FlowError),
    /// The last hop violated the rules of Conflux, or does not support it.
    Conflux(ConfluxError),
}

impl From<ConfluxError> for Loss {
    fn from(error: ConfluxError) -> Self {
        Self::Conflux(error)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(cause) => write!(f, "link to the first hop: {cause}"),
            Self::Channel(problem) => f.write_str(problem),
            Self::Silent => {
                f.write_str("a leg that delivers nothing while the others of its set wait for it")
            }
            Self::Circuit(error) => error.fmt(f),
            Self::Flow(error) => error.fmt(f),
            Self::Conflux(error) => write!(f, "the last hop broke the protocol: {error}"),
        }
    }
}

/// The outcome of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole transfer was correct, in both directions.
    Complete,
    /// The relay closed the stream early.
    Ended(EndReason),
    /// The data is wrong at `offset` or shortly after it.
    WrongBytes {
        /// The number of correct bytes before.
        offset: u64,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("whole"),
            Self::Ended(reason) => write!(f, "ended by the last hop: {reason}"),
            Self::WrongBytes { offset } => write!(f, "wrong after {offset} bytes"),
        }
    }
}

/// The statistics of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// When BEGIN was sent.
    pub begun_at: Instant,
    /// When CONNECTED arrived.
    pub connected_at: Option<Instant>,
    /// When the first byte arrived.
    pub first_byte_at: Option<Instant>,
    /// When the last byte or END arrived.
    pub last_at: Instant,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent, including the request.
    pub sent_bytes: u64,
    /// Maximum number of buffered bytes.
    pub held_bytes_max: u64,
}

impl Figures {
    /// The time from BEGIN to the first byte.
    #[must_use]
    pub fn to_first_byte(&self) -> Option<Duration> {
        self.first_byte_at.map(|at| at - self.begun_at)
    }

    /// The time from BEGIN to the end. If a BEGIN is refused, it is the round-trip time.
    #[must_use]
    pub fn to_last(&self) -> Duration {
        self.last_at - self.begun_at
    }
}
