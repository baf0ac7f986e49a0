use super::application::Application;
use super::core::Core;
use super::event::{CircuitNumber, Loss};
use crate::cell::{CircId, Command};
use crate::circuit::NextHop;
use crate::node::{CloseCause, ConnId, Dial, Security};
use crate::suite::{Body, Cell, Suite};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;
use rand_core::Rng;

/// A link to a first hop.
#[derive(Debug)]
pub(super) struct Link<S: Suite> {
    pub(super) to: NextHop,
    /// One circuit has it for itself.
    is_own: bool,
    /// Circuits may be opened on it.
    pub(super) is_open: bool,
    /// It is to be closed: nobody else gets it.
    pub(super) is_closing: bool,
    pub(super) circuits: BTreeMap<CircId, CircuitNumber>,
    opened: u32,
    /// The circuit that was the last to send data.
    turn: CircId,
    /// It waits in the queue of writable links.
    pub(super) is_queued: bool,
    /// Cells other than of data, on their way out.
    cells: VecDeque<S::Cell>,
}

impl<S: Suite> Link<S> {
    pub(super) const fn new(to: NextHop, is_own: bool) -> Self {
        Self {
            to,
            is_own,
            is_open: false,
            is_closing: false,
            circuits: BTreeMap::new(),
            opened: 0,
            turn: CircId::LINK,
            is_queued: false,
            cells: VecDeque::new(),
        }
    }

    /// Whether a circuit through this relay may share it.
    pub(super) fn serves(&self, first: &NextHop) -> bool {
        let is_to = self.to.address == first.address && self.to.ids == first.ids;
        is_to && !self.is_own && !self.is_closing
    }

    pub(super) fn add_circuit(&mut self, number: CircuitNumber) -> CircId {
        self.opened += 1;
        let circ_id = CircId::of_initiator(self.opened);
        self.circuits.insert(circ_id, number);
        circ_id
    }

    /// The circuit whose turn it is, after the one that had the last.
    pub(super) fn take_turn(&mut self) -> Option<CircuitNumber> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let next = self.circuits.range(after).next().or_else(|| self.circuits.iter().next());
        let (circ_id, number) = next?;
        self.turn = *circ_id;
        Some(*number)
    }

    pub(super) fn push(&mut self, cell: S::Cell) {
        self.cells.push_back(cell);
    }

    /// Moves cells to where they leave; how many.
    pub(super) fn pop_into(&mut self, out: &mut [S::Cell]) -> usize {
        let count = self.cells.len().min(out.len());
        for (place, cell) in out.iter_mut().zip(self.cells.drain(..count)) {
            *place = cell;
        }
        count
    }
}

impl<S: Suite, A: Application<S>, R: Rng> Core<S, A, R> {
    /// A new link to a first hop.
    pub(super) fn dial(&mut self, first: NextHop, is_own: bool) -> ConnId {
        let conn = ConnId(self.dialled);
        self.dialled += 1;
        self.links.insert(conn, Link::new(first, is_own));
        self.to_dial.push_back(Dial { conn, to: first.address, security: Security::Tls });
        conn
    }

    /// Circuits may be opened on a link that was dialled.
    pub fn handle_link_open(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        let Some(link) = self.links.get_mut(&conn) else { return };
        link.is_open = true;
        let waiting: Vec<CircuitNumber> = link.circuits.values().copied().collect();
        waiting.into_iter().for_each(|number| self.create(number));
    }

    /// A link is gone, or could not be made.
    pub fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.now = now;
        self.lose_link(conn, &Loss::Link(cause));
    }

    /// What comes on a link is not what a relay says that we can talk to: the link will be closed.
    pub fn handle_broken(&mut self, now: Instant, conn: ConnId, problem: String) {
        self.now = now;
        self.lose_link(conn, &Loss::Channel(problem));
        self.to_close.push_back(conn);
    }

    fn lose_link(&mut self, conn: ConnId, cause: &Loss) {
        let Some(link) = self.links.remove(&conn) else { return };
        for circuit in link.circuits.into_values() {
            self.lose_circuit(circuit, cause.clone());
        }
    }

    /// Closes the links that carry no circuit.
    pub fn close_idle(&mut self) {
        for (conn, link) in &mut self.links {
            if link.circuits.is_empty() && !core::mem::replace(&mut link.is_closing, true) {
                self.to_close.push_back(*conn);
            }
        }
    }

    /// The next link to be made.
    #[must_use]
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    /// The next link that has cells to send.
    #[must_use]
    pub fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.writable.pop_front()?;
            if let Some(link) = self.links.get_mut(&conn) {
                link.is_queued = false;
                return Some(conn);
            }
        }
    }

    /// The next link to be closed.
    #[must_use]
    pub fn poll_close(&mut self) -> Option<ConnId> {
        let conn = self.to_close.pop_front()?;
        self.links.remove(&conn);
        Some(conn)
    }

    /// Queues a cell with these bytes on a link.
    pub(super) fn send(&mut self, conn: ConnId, circ_id: CircId, command: Command, body: &[u8]) {
        self.send_body(conn, circ_id, command, S::Body::from_bytes(body));
    }

    pub(super) fn send_body(
        &mut self,
        conn: ConnId,
        circ_id: CircId,
        command: Command,
        body: S::Body,
    ) {
        let link = self.links.get_mut(&conn).filter(|link| link.is_open);
        let Some(link) = link else { return };
        let mut cell = S::Cell::EMPTY;
        *cell.begin(circ_id, command) = body;
        link.push(cell);
        self.wake(conn);
    }

    /// Queues a link for writing, once.
    pub(super) fn wake(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn)
            && !core::mem::replace(&mut link.is_queued, true)
        {
            self.writable.push_back(conn);
        }
    }
}
