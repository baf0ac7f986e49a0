use crate::cell::msg::DestroyReason;
use crate::cell::relay::RelayCommand;
use crate::cell::{Command, Malformed};
use crate::crypto::{CryptError, HandshakeFailed};
use core::fmt;

/// Why a circuit could not be built, or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitError {
    /// The relay destroyed it.
    Destroyed(DestroyReason),
    /// A hop reports that the next hop is gone.
    Truncated(DestroyReason),
    /// A handshake failed to prove the relay's identity.
    Handshake(HandshakeFailed),
    /// A cell could not be decrypted.
    Crypt(CryptError),
    /// A message could not be parsed.
    Malformed(Malformed),
    /// An unexpected cell.
    Unexpected(Command),
    /// An unexpected relay message.
    UnexpectedMessage(RelayCommand),
}

impl CircuitError {
    /// Whether the first hop may have mistaken the new circuit for an idle one: another try on the same link is
    /// worthwhile.
    ///
    /// C tor, at least up to 0.4.9, checks clients' circuits every eleven seconds and closes those that end at
    /// it and whose links have sent no cell for an hour. On a link that has not sent any cell, the last one
    /// appears to be from 1970. So a new circuit whose answer has not been sent is destroyed: all circuits of
    /// several links at once if they are created together. The answer arrives, followed by DESTROY. By then the
    /// link has sent a cell, and the next try succeeds.
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
