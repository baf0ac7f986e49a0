use super::messages::{Chunk, Serial};
use crate::sockopt::{self, TcpAccount};
use onion::node::{CloseCause, Security, SocketState};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// One connection.
pub(super) struct Conn {
    pub(super) hand: usize,
    pub(super) serial: Serial,
    pub(super) security: Security,
    pub(super) is_connected: bool,
    /// Bytes that were given to the thread, and of which it has not said that they are encrypted.
    pub(super) in_flight: usize,
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
            in_flight: 0,
            wants_flush: false,
            granted: 0,
            held: VecDeque::new(),
            taken: 0,
            closed: None,
            socket: None,
        }
    }

    /// What the kernel says of its way out. Of what its thread has encrypted and the kernel has not
    /// taken, nobody but the thread knows.
    pub(super) fn state(&self) -> Option<SocketState> {
        sockopt::socket_state(self.socket.as_ref()?, self.in_flight)
    }

    /// What the kernel says of it.
    pub(super) fn account(&self) -> Option<TcpAccount> {
        sockopt::tcp_account(self.socket.as_ref()?)
    }
}
