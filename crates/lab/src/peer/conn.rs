use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::identity::RsaId;
use onion::link::{Channel, ExpectedPeer};
use onion::node::ConnId;
use std::collections::{BTreeMap, VecDeque};

/// Cells that wait on one connection, at most; over that, a circuit that wants more is destroyed.
const QUEUE_CELLS_MAX: usize = 8192;

/// One connection: accepted, or dialled to extend a circuit.
#[derive(Debug)]
pub(super) struct Conn {
    /// None until TLS stands, and for ever for one who never answers.
    pub(super) channel: Option<Channel>,
    /// Whom it leads to, if it was dialled.
    pub(super) expected: Option<ExpectedPeer>,
    /// Circuits that wait for the link to open, with their CREATE2 bodies.
    pub(super) waiting: Vec<(u32, Vec<u8>)>,
    /// Circuits opened on it by us.
    pub(super) opened: u32,
    is_queued: bool,
}

impl Conn {
    /// The next circuit ID of our choice.
    pub(super) const fn next_circ_id(&mut self) -> CircId {
        self.opened += 1;
        CircId::of_initiator(self.opened)
    }
}

/// A cell that is out of its channel's hands.
#[derive(Clone, Debug)]
pub(super) struct OwnedCell {
    pub(super) circ_id: CircId,
    pub(super) command: Command,
    pub(super) body: [u8; BODY_LEN],
}

/// All connections, and which of them have something to transmit.
#[derive(Debug)]
pub(super) struct Conns {
    conns: BTreeMap<ConnId, Conn>,
    writable: VecDeque<ConnId>,
    next: u32,
}

impl Conns {
    pub(super) const fn new() -> Self {
        Self { conns: BTreeMap::new(), writable: VecDeque::new(), next: 0 }
    }

    pub(super) fn add(
        &mut self,
        channel: Option<Channel>,
        expected: Option<ExpectedPeer>,
    ) -> ConnId {
        let id = ConnId(self.next);
        self.next += 1;
        let (waiting, opened, is_queued) = (Vec::new(), 0, false);
        self.conns.insert(id, Conn { channel, expected, waiting, opened, is_queued });
        id
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        self.conns.remove(&id)
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.conns.keys().copied().collect()
    }

    /// The connection that we dialled to a relay: there is one for each RSA identity.
    pub(super) fn to_relay(&self, rsa: RsaId) -> Option<ConnId> {
        let leads_there =
            |conn: &Conn| conn.expected.is_some_and(|expected| expected.ids.rsa == rsa);
        self.conns.iter().find(|(_, conn)| leads_there(conn)).map(|(id, _)| *id)
    }

    /// Queues a connection for writing, once.
    pub(super) fn wake(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && !conn.is_queued
        {
            conn.is_queued = true;
            self.writable.push_back(id);
        }
    }

    pub(super) fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let id = self.writable.pop_front()?;
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.is_queued = false;
                return Some(id);
            }
        }
    }

    /// Queues a cell; false if the queue is full.
    pub(super) fn send(
        &mut self,
        id: ConnId,
        circ_id: CircId,
        command: Command,
        body: &[u8],
    ) -> bool {
        let channel = self.conns.get_mut(&id).and_then(|conn| conn.channel.as_mut());
        let Some(channel) = channel else { return true };
        // The end of a circuit must always get through: there is one per circuit.
        if channel.queued_len() >= QUEUE_CELLS_MAX * CELL_LEN && command != Command::DESTROY {
            return false;
        }
        channel.send(circ_id, command, body);
        self.wake(id);
        true
    }
}
