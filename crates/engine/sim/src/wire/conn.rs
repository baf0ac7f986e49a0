//! The state of a connection.

use super::config::NodeId;
use super::tcp::{Receiver, Sender};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::Instant;
use onion::node::{CloseCause, ConnId, Security};

/// A connection between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) u64);

/// One of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Dialler,
    Acceptor,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Acceptor,
            Self::Acceptor => Self::Dialler,
        }
    }
}

/// One side of a connection, as its node sees it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: NodeId,
    pub(super) conn: ConnId,
    /// Whether the node knows that it is established.
    pub(super) is_connected: bool,
    /// Whether the node has closed it or knows that it is closed.
    pub(super) is_closed: bool,
    /// Whether the node may have more to transmit.
    pub(super) wants_flush: bool,
    /// Bytes sent that the other node has not received.
    pub(super) under_way_bytes: usize,
    /// When the last of the sent bytes arrives: nothing overtakes.
    pub(super) last_arrival: Instant,
    /// Arrived bytes that the node does not accept yet.
    pub(super) held: Held,
    /// The other side has closed it: the node is notified when it has read everything.
    pub(super) ended: Option<CloseCause>,
    /// Its TCP state, over a path with a model.
    pub(super) tcp: Option<Box<Tcp>>,
}

/// One side's TCP.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The right edge of the window last advertised to the other side.
    pub(super) window_end: u64,
}

/// Bytes that wait until a node reads them.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Vec<u8>,
    start: usize,
}

impl Held {
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The first of them, at most this number.
    pub(super) fn take(&mut self, len_max: usize) -> Vec<u8> {
        let until = self.start + len_max.min(self.len());
        let taken = self.bytes[self.start..until].to_vec();
        self.start = until;
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        taken
    }
}

impl End {
    pub(super) fn new(node: NodeId, conn: ConnId, now: Instant, tcp: Option<Box<Tcp>>) -> Self {
        Self {
            node,
            conn,
            is_connected: false,
            is_closed: false,
            wants_flush: false,
            under_way_bytes: 0,
            last_arrival: now,
            held: Held::default(),
            ended: None,
            tcp,
        }
    }

    /// Whether the send buffer is full.
    pub(super) fn is_full(&self, send_buffer_bytes: usize) -> bool {
        match &self.tcp {
            Some(tcp) => tcp.sender.buffered_bytes() >= send_buffer_bytes as u64,
            None => self.under_way_bytes >= send_buffer_bytes,
        }
    }
}

/// A connection: its sides and its path.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) to: SocketAddr,
    pub(super) security: Security,
    pub(super) dialler: End,
    /// Once the dial has arrived.
    pub(super) acceptor: Option<End>,
}

impl Link {
    pub(super) const fn end(&self, side: Side) -> Option<&End> {
        match side {
            Side::Dialler => Some(&self.dialler),
            Side::Acceptor => self.acceptor.as_ref(),
        }
    }

    pub(super) const fn end_mut(&mut self, side: Side) -> Option<&mut End> {
        match side {
            Side::Dialler => Some(&mut self.dialler),
            Side::Acceptor => self.acceptor.as_mut(),
        }
    }
}
