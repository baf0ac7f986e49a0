use core::fmt;

/// How the other end of a set of linked circuits has broken the rules. The circuits are of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxError {
    /// A message of the handshake where none is due, or with a nonce that is not the set's.
    Handshake,
    /// The message is malformed.
    Malformed,
    /// The circuit has no congestion control, or is none that can be a leg.
    Unsuitable,
    /// More than [`LEGS_MAX`](super::LEGS_MAX).
    TooManyLegs,
    /// Both ends do not mean the same by what was sent and what has come.
    Desynchronised,
    /// A SWITCH that nothing follows, or one where there is no set.
    Switch,
    /// A message of streams on a circuit that is not linked yet, or from another hop than the last.
    Misplaced,
    /// A message that has come already.
    Duplicate,
    /// More messages than the bound wait for others that come before them.
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
