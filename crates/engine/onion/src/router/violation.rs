//! Reasons to close a link, and the party to blame.

use crate::flow::hop::Excess;
use core::fmt;

/// Why the router closes a link: its peer has broken a rule of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A circuit with ID 0, which means the link itself (tor-spec §5.1.1).
    ZeroCircuitId,
    /// A circuit on a measurer's link that was not created by CREATE_FAST (`docs/protocol.md`, "The measurement").
    NotAMeasurementCircuit,
    /// More circuits than a measurement may have on one link.
    TooManyMeasurementCircuits,
    /// Data that is not a stream of cells, or a cell of the link handshake after its end (tor-spec §3, §4).
    NotCells,
    /// More data than the relay buffers before it has verified the peer's certificates.
    TooMuchBeforeVerification,
    /// A FEEDBACK cell that cannot be parsed (`docs/protocol.md`), and why.
    MalformedFeedback(&'static str),
    /// A FEEDBACK cell that reports more forwarded cells than the peer received.
    ExcessFeedback,
    /// Far more padding than padding-spec §2 permits, or as many cells that mean nothing.
    ExcessPadding,
}

/// The party that is to blame for a [`Violation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offender {
    /// A client or relay.
    Peer,
    /// A measurer that has proved its identity.
    Measurer,
}

impl Violation {
    /// The party to blame: always the one at the other end of the link.
    #[must_use]
    pub const fn offender(self) -> Offender {
        match self {
            Self::NotAMeasurementCircuit | Self::TooManyMeasurementCircuits => Offender::Measurer,
            _ => Offender::Peer,
        }
    }
}

impl From<Excess> for Violation {
    fn from(_: Excess) -> Self {
        Self::ExcessFeedback
    }
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "the peer",
            Self::Measurer => "the measurer",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.offender())?;
        match self {
            Self::ZeroCircuitId => f.write_str("created a circuit with ID 0"),
            Self::NotAMeasurementCircuit => {
                f.write_str("created a circuit that is not a measurement circuit")
            }
            Self::TooManyMeasurementCircuits => {
                f.write_str("created too many measurement circuits on one link")
            }
            Self::NotCells => f.write_str("sent data that is not a valid stream of cells"),
            Self::TooMuchBeforeVerification => {
                f.write_str("sent too much data before its certificates were verified")
            }
            Self::MalformedFeedback(problem) => {
                write!(f, "sent a malformed FEEDBACK cell: {problem}")
            }
            Self::ExcessFeedback => Excess.fmt(f),
            Self::ExcessPadding => f.write_str("sent far more padding than padding-spec permits"),
        }
    }
}
