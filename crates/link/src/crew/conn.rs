use super::messages::{Chunk, Load, Serial};
use crate::driver::PENDING_LEN;
use crate::sockopt::{self, TcpAccount};
use onion::node::{CloseCause, Security, SocketState, Unwritten};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// One connection.
pub(super) struct Conn {
    pub(super) hand: usize,
    pub(super) serial: Serial,
    pub(super) security: Security,
    pub(super) is_connected: bool,
    /// What was given to the thread, and of which it has not said that it is encrypted.
    pub(super) in_flight: Load,
    /// What the thread has encrypted and the kernel has not taken, by its last word.
    pub(super) unwritten: Unwritten,
    /// Memory that the node was told of last.
    pub(super) held_told: usize,
    /// Bytes that have left since.
    pub(super) written_untold: usize,
    /// The node may have more to send.
    pub(super) wants_flush: bool,
    /// Bytes that the thread may still read, without TLS.
    pub(super) granted: usize,
    /// What came without TLS and the node does not take yet: it may take less than it did when they
    /// were granted.
    pub(super) held: VecDeque<Chunk>,
    /// Bytes of the first of these that the node has.
    pub(super) taken: usize,
    /// It is closed, which the node hears once it has what came before.
    pub(super) closed: Option<CloseCause>,
    /// The same socket, to ask the kernel of its state.
    pub(super) socket: Option<OwnedFd>,
}

impl Conn {
    pub(super) fn new(hand: usize, serial: Serial, security: Security) -> Self {
        Self {
            hand,
            serial,
            security,
            is_connected: false,
            in_flight: Load::default(),
            unwritten: Unwritten::default(),
            held_told: 0,
            written_untold: 0,
            wants_flush: false,
            granted: 0,
            held: VecDeque::new(),
            taken: 0,
            closed: None,
            socket: None,
        }
    }

    /// What the kernel says of its way out.
    pub(super) fn state(&self) -> Option<SocketState> {
        let unwritten = self.in_flight.bytes + self.unwritten.pending_bytes;
        sockopt::socket_state(self.socket.as_ref()?, unwritten)
    }

    /// What the node is to be told of what waits to be written, if anything. So much of it has left since the last time.
    pub(super) fn news_of_unwritten(&mut self, written_bytes: usize) -> Option<Unwritten> {
        let pending_bytes = self.in_flight.bytes + self.unwritten.pending_bytes;
        let held_bytes = self.in_flight.held_bytes + self.unwritten.held_bytes;
        if held_bytes == 0 && self.held_told == 0 {
            return None;
        }
        self.written_untold += written_bytes;
        // What it takes is the same, and how long that has waited is known well enough.
        if held_bytes == self.held_told && self.written_untold < PENDING_LEN {
            return None;
        }
        self.held_told = held_bytes;
        let written_bytes = std::mem::take(&mut self.written_untold);
        Some(Unwritten { pending_bytes, written_bytes, held_bytes })
    }

    /// What the kernel says of it.
    pub(super) fn account(&self) -> Option<TcpAccount> {
        sockopt::tcp_account(self.socket.as_ref()?)
    }
}
