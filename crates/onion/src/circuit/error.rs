use crate::cell::msg::DestroyReason;
use crate::cell::relay::RelayCommand;
use crate::cell::{Command, Malformed};
use crate::crypto::{CryptError, HandshakeFailed};
use core::fmt;

/// Why a circuit could not be built, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitError {
    /// The relay closed it.
    Destroyed(DestroyReason),
    /// A hop says that the one after it is gone.
    Truncated(DestroyReason),
    /// A handshake does not prove what it has to.
    Handshake(HandshakeFailed),
    /// A cell does not decrypt.
    Crypt(CryptError),
    /// A message does not parse.
    Malformed(Malformed),
    /// A cell that has no place at this point.
    Unexpected(Command),
    /// A relay message that has no place at this point.
    UnexpectedMessage(RelayCommand),
}

impl CircuitError {
    /// Whether the first hop may have taken the circuit for one that nobody has used for long, though it has just been begun: it is worth another try on the same link.
    ///
    /// C tor, to 0.4.9 at least, looks through its clients' circuits every eleven seconds, and ends those that end at it
    /// and whose links have sent no cell for an hour. Where a link has not sent any yet, that was in 1970. So what has begun and
    /// whose answer has not left is ended: all circuits of several links at once, if they have been opened together. The
    /// answer comes, and the DESTROY behind it. Then the link has sent a cell, and the next try stands.
    #[must_use]
    pub fn may_be_swept(&self) -> bool {
        *self == Self::Destroyed(DestroyReason::FINISHED)
    }
}

impl fmt::Display for CircuitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destroyed(reason) => write!(f, "circuit closed by the relay: {reason}"),
            Self::Truncated(reason) => write!(f, "circuit cut at the relay: {reason}"),
            Self::Handshake(error) => error.fmt(f),
            Self::Crypt(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Unexpected(command) => write!(f, "unexpected {command} cell on the circuit"),
            Self::UnexpectedMessage(RelayCommand(number)) => {
                write!(f, "unexpected relay message {number} on the circuit")
            }
        }
    }
}

impl core::error::Error for CircuitError {}
