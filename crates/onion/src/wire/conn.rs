use super::NodeId;
use crate::node::ConnId;
use crate::rate::Rate;
use crate::time::Instant;
use core::net::SocketAddr;

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

/// One side of a connection, from its node's point of view.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: NodeId,
    pub(super) conn: ConnId,
    /// The node has heard that it stands.
    pub(super) is_connected: bool,
    /// The node has closed it, or has heard that it is closed.
    pub(super) is_closed: bool,
    /// The node may have more to transmit than was asked for.
    pub(super) wants_flush: bool,
    /// Bytes that it sent and that have not arrived.
    pub(super) under_way_bytes: usize,
    /// When the last of what it sent arrives: nothing overtakes.
    pub(super) last_arrival: Instant,
}

impl End {
    pub(super) const fn new(node: NodeId, conn: ConnId, now: Instant) -> Self {
        Self {
            node,
            conn,
            is_connected: false,
            is_closed: false,
            wants_flush: false,
            under_way_bytes: 0,
            last_arrival: now,
        }
    }
}

/// A connection: its sides, and where it leads.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) to: SocketAddr,
    pub(super) dialler: End,
    /// Once the dial has reached it.
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

/// A node's limit on what it sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egress {
    pub(super) rate: Rate,
    /// When what it has sent so far has left.
    pub(super) free_at: Instant,
}

impl Egress {
    /// When `bytes` more will have left.
    pub(super) fn send(&mut self, now: Instant, bytes: usize) -> Instant {
        self.free_at = self.free_at.max(now) + self.rate.time_for(bytes as u64);
        self.free_at
    }
}
