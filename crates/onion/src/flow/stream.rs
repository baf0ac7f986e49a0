//! Flow control of streams, at the edge where cells become a byte stream (tor-spec §7.4;
//! proposal 324 §4).
//!
//! On a circuit with a fixed window each stream has a [`StreamWindow`], too. With congestion control
//! it has [`XonXoff`].

mod rated;
mod windowed;

pub use rated::{XonXoff, XonXoffParams};
pub use windowed::StreamWindow;

use super::error::FlowError;
use crate::cell::msg::{Xoff, Xon};
use crate::cell::relay::RelayCommand;
use crate::time::Instant;
use alloc::vec::Vec;

/// A message of flow control that is to be sent on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamSignal {
    /// A SENDME without data.
    Sendme,
    /// An XOFF.
    Xoff,
    /// An XON.
    Xon(Xon),
}

impl StreamSignal {
    /// The relay message of it: command and content.
    #[must_use]
    pub fn encode(self) -> (RelayCommand, Vec<u8>) {
        let mut data = Vec::new();
        let command = match self {
            Self::Sendme => RelayCommand::SENDME,
            Self::Xoff => {
                Xoff.encode_into(&mut data);
                RelayCommand::XOFF
            }
            Self::Xon(xon) => {
                xon.encode_into(&mut data);
                RelayCommand::XON
            }
        };
        (command, data)
    }
}

/// One end's flow control of a stream.
///
/// Two byte streams meet here. What is read from the edge is *packaged* into DATA cells. What DATA
/// cells bring is *delivered* into a buffer, from which it is *drained* to the edge. After each
/// `handle_delivered` and `handle_drained` ask [`poll_signal`](Self::poll_signal) until it has nothing
/// more to say.
#[derive(Clone, Debug)]
pub enum StreamFlow {
    /// On a circuit with a fixed window.
    Windowed(StreamWindow),
    /// On a circuit with congestion control.
    Rated(XonXoff),
}

impl StreamFlow {
    /// Bytes that may be read from the edge now. The circuit's room is another limit.
    #[must_use]
    pub fn room_bytes(&mut self, now: Instant) -> u64 {
        match self {
            Self::Windowed(window) => window.room_bytes(),
            Self::Rated(rated) => rated.room_bytes(now),
        }
    }

    /// When `bytes` more may be read, if it is only the advised rate that forbids it now.
    #[must_use]
    pub fn has_room_at(&self, bytes: u64) -> Option<Instant> {
        match self {
            Self::Windowed(_) => None,
            Self::Rated(rated) => rated.has_room_at(bytes),
        }
    }

    /// A DATA cell with `bytes` bytes from the edge was packaged.
    pub const fn handle_packaged(&mut self, bytes: u64) {
        match self {
            Self::Windowed(window) => window.handle_packaged(),
            Self::Rated(rated) => rated.handle_packaged(bytes),
        }
    }

    /// A SENDME has come on the stream.
    ///
    /// # Errors
    /// Where it acknowledges cells that were not sent, or the circuit has congestion control.
    pub fn handle_sendme(&mut self) -> Result<(), FlowError> {
        match self {
            Self::Windowed(window) => window.handle_sendme(),
            Self::Rated(_) => Err(FlowError::WrongKind),
        }
    }

    /// An XOFF has come: nothing may be read from the edge until an XON comes.
    ///
    /// # Errors
    /// Where the stream is stopped already, or has windows. Tor ignores such a message and keeps the
    /// circuit.
    pub const fn handle_xoff(&mut self) -> Result<(), FlowError> {
        match self {
            Self::Windowed(_) => Err(FlowError::WrongKind),
            Self::Rated(rated) => rated.handle_xoff(),
        }
    }

    /// An XON has come: reading from the edge goes on, no faster than it advises.
    ///
    /// # Errors
    /// Where the stream has windows. Tor ignores such a message and keeps the circuit.
    pub fn handle_xon(&mut self, now: Instant, xon: Xon) -> Result<(), FlowError> {
        match self {
            Self::Windowed(_) => Err(FlowError::WrongKind),
            Self::Rated(rated) => {
                rated.handle_xon(now, xon);
                Ok(())
            }
        }
    }

    /// A DATA cell has come; with it `buffered_bytes` wait to be written to the edge.
    ///
    /// # Errors
    /// Where the sender has exceeded its window.
    pub fn handle_delivered(
        &mut self,
        now: Instant,
        buffered_bytes: usize,
    ) -> Result<(), FlowError> {
        match self {
            Self::Windowed(window) => window.handle_delivered(buffered_bytes),
            Self::Rated(rated) => {
                rated.handle_delivered(now, buffered_bytes);
                Ok(())
            }
        }
    }

    /// `drained_bytes` were written to the edge, and `buffered_bytes` still wait.
    pub fn handle_drained(&mut self, now: Instant, drained_bytes: usize, buffered_bytes: usize) {
        match self {
            Self::Windowed(window) => window.handle_drained(buffered_bytes),
            Self::Rated(rated) => rated.handle_drained(now, drained_bytes, buffered_bytes),
        }
    }

    /// A message that is to be sent now.
    pub fn poll_signal(&mut self) -> Option<StreamSignal> {
        match self {
            Self::Windowed(window) => window.poll_signal(),
            Self::Rated(rated) => rated.poll_signal(),
        }
    }
}

#[cfg(test)]
mod tests;
