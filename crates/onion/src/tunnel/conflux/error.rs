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
            Self::Handshake => "a message of the handshake that links circuits, where none is due",
            Self::Malformed => "a malformed message about linked circuits",
            Self::Unsuitable => "a circuit that cannot be linked: it has no congestion control",
            Self::TooManyLegs => "more circuits in a set than may be",
            Self::Desynchronised => "a linked circuit whose ends disagree on what was sent",
            Self::Switch => "a switch of circuits that nothing follows",
            Self::Misplaced => "data on a circuit, or from a hop, that is not linked",
            Self::Duplicate => "a message of linked circuits that has come before",
            Self::TooEarly => "too much data on linked circuits before its turn",
        })
    }
}

impl core::error::Error for ConfluxError {}
