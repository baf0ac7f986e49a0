use crate::cell::msg::EndReason;
use crate::circuit::CircuitError;
use crate::flow::control::FlowError;
use crate::node::CloseCause;
use crate::time::{Duration, Instant};
use crate::tunnel::conflux::ConfluxError;
use alloc::string::String;
use core::fmt;

/// A circuit of a [`Client`](super::Client); numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CircuitNumber(pub(super) u32);

/// A stream of a [`Client`](super::Client); numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamNumber(pub(super) u32);

/// What a client has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A circuit stands, or a set of them: all its legs are linked, or have gone.
    Built {
        /// Which.
        circuit: CircuitNumber,
        /// Time since its first cell; of a set, since it was asked for.
        took: Duration,
    },
    /// A circuit is gone, or could not be built; its streams go without a word.
    Lost {
        /// Which.
        circuit: CircuitNumber,
        /// Why.
        cause: Loss,
    },
    /// A circuit of a set stands, and is to be linked.
    LegBuilt {
        /// The set.
        circuit: CircuitNumber,
        /// Which leg of it.
        leg: u8,
        /// Time since its first cell.
        took: Duration,
    },
    /// A leg of a set is gone, or could not be built; the set goes on, or waits for its other legs.
    LegLost {
        /// The set.
        circuit: CircuitNumber,
        /// Which leg of it.
        leg: u8,
        /// Why.
        cause: Loss,
    },
    /// A stream is over.
    Over {
        /// Which.
        stream: StreamNumber,
        /// How it went.
        outcome: Outcome,
        /// Times and bytes.
        figures: Figures,
    },
}

/// Why a circuit is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The link to the first hop closed, or never stood.
    Link(CloseCause),
    /// The first hop is no relay that we can talk to.
    Channel(String),
    /// A relay ended the circuit, or broke the protocol.
    Circuit(CircuitError),
    /// The leg has brought nothing, while others of its set wait for what it has.
    Silent,
    /// The last hop broke the rules of flow control.
    Flow(FlowError),
    /// The last hop broke the rules of linked circuits, or does not link them.
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
                f.write_str("a leg that brings nothing, while the others of its set wait for it")
            }
            Self::Circuit(error) => error.fmt(f),
            Self::Flow(error) => error.fmt(f),
            Self::Conflux(error) => write!(f, "the last hop broke the protocol: {error}"),
        }
    }
}

/// How a stream went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that was asked for has come, and was right; so was what we sent.
    Complete,
    /// The relay ended the stream before.
    Ended(EndReason),
    /// Byte `offset` of what came, or one not far after it, is wrong.
    WrongBytes {
        /// Bytes that were right before.
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

/// Times and bytes of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// When BEGIN was sent.
    pub begun_at: Instant,
    /// When CONNECTED came.
    pub connected_at: Option<Instant>,
    /// When the first byte came.
    pub first_byte_at: Option<Instant>,
    /// When the last byte or END came.
    pub last_at: Instant,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Bytes that were sent, the request included.
    pub sent_bytes: u64,
    /// Most bytes that waited to be read at once.
    pub held_bytes_max: u64,
}

impl Figures {
    /// Time from BEGIN to the first byte.
    #[must_use]
    pub fn to_first_byte(&self) -> Option<Duration> {
        self.first_byte_at.map(|at| at - self.begun_at)
    }

    /// Time from BEGIN to the end: the round trip, where a BEGIN is refused.
    #[must_use]
    pub fn to_last(&self) -> Duration {
        self.last_at - self.begun_at
    }
}
