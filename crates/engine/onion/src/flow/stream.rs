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

/// A flow control message to be sent on the stream.
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
    /// The relay message: command and content.
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
/// It connects two byte streams. Data read from the edge is *packaged* into DATA cells. Data of received DATA
/// cells is *delivered* into a buffer, from which it is *drained* to the edge. After each `handle_delivered`
/// and `handle_drained`, call [`poll_signal`](Self::poll_signal) until it returns `None`.
#[derive(Clone, Debug)]
pub enum StreamFlow {
    /// On a circuit with a fixed window.
    Windowed(StreamWindow),
    /// On a circuit with congestion control.
    Rated(XonXoff),
}

impl StreamFlow {
    /// Bytes that may be read from the edge now. The circuit's window is another limit.
    #[must_use]
    pub fn room_bytes(&mut self, now: Instant) -> u64 {
        match self {
            Self::Windowed(window) => window.room_bytes(),
            Self::Rated(rated) => rated.room_bytes(now),
        }
    }

    /// When `bytes` more may be read, if only the advised rate prevents it now.
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

    /// A SENDME has arrived on the stream.
    ///
    /// # Errors
    /// If it acknowledges cells that were not sent, or the circuit has congestion control.
    pub fn handle_sendme(&mut self) -> Result<(), FlowError> {
        match self {
            Self::Windowed(window) => window.handle_sendme(),
            Self::Rated(_) => Err(FlowError::WrongKind),
        }
    }

    /// XOFF has arrived: nothing may be read from the edge until XON.
    ///
    /// # Errors
    /// If the stream is stopped already, or has a window. Tor ignores such a message and keeps the circuit.
    pub const fn handle_xoff(&mut self) -> Result<(), FlowError> {
        match self {
            Self::Windowed(_) => Err(FlowError::WrongKind),
            Self::Rated(rated) => rated.handle_xoff(),
        }
    }

    /// XON has arrived: reading from the edge resumes, at most at the advised rate.
    ///
    /// # Errors
    /// If the stream has a window. Tor ignores such a message and keeps the circuit.
    pub fn handle_xon(&mut self, now: Instant, xon: Xon) -> Result<(), FlowError> {
        match self {
            Self::Windowed(_) => Err(FlowError::WrongKind),
            Self::Rated(rated) => {
                rated.handle_xon(now, xon);
                Ok(())
            }
        }
    }

    /// A DATA cell has arrived; `buffered_bytes` now wait for the edge.
    ///
    /// # Errors
    /// If the sender has exceeded its window.
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

    /// `drained_bytes` were written to the edge, and `buffered_bytes` remain.
    pub fn handle_drained(&mut self, now: Instant, drained_bytes: usize, buffered_bytes: usize) {
        match self {
            Self::Windowed(window) => window.handle_drained(buffered_bytes),
            Self::Rated(rated) => rated.handle_drained(now, drained_bytes, buffered_bytes),
        }
    }

    /// The next message to send.
    pub fn poll_signal(&mut self) -> Option<StreamSignal> {
        match self {
            Self::Windowed(window) => window.poll_signal(),
            Self::Rated(rated) => rated.poll_signal(),
        }
    }
}

#[cfg(test)]
mod tests;
