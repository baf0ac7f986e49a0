use core::fmt;

/// A violation of the rules of Conflux by the other end. The circuits are unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxError {
    /// A handshake message when none is expected, or with another set's nonce.
    Handshake,
    /// The message is malformed.
    Malformed,
    /// The circuit has no congestion control, or cannot be a leg.
    Unsuitable,
    /// More than [`LEGS_MAX`](super::LEGS_MAX).
    TooManyLegs,
    /// The two ends disagree about the numbers of messages sent and received.
    Desynchronised,
    /// A SWITCH that no message follows, or one without a set.
    Switch,
    /// A stream message on a circuit that is not linked yet, or from a hop that is not the last.
    Misplaced,
    /// A message that has arrived before.
    Duplicate,
    /// More out-of-order messages than allowed.
    TooEarly,
}

impl fmt::Display for ConfluxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handshake => "an unexpected message of the Conflux handshake",
            Self::Malformed => "a malformed Conflux message",
            Self::Unsuitable => "a circuit that cannot be linked: it has no congestion control",
            Self::TooManyLegs => "too many circuits in a set",
            Self::Desynchronised => "a linked circuit whose ends disagree on what was sent",
            Self::Switch => "a SWITCH that no message follows",
            Self::Misplaced => "data on a circuit, or from a hop, that is not linked",
            Self::Duplicate => "a duplicate message of linked circuits",
            Self::TooEarly => "too much out-of-order data on linked circuits",
        })
    }
}

impl core::error::Error for ConfluxError {}
