//! Opening, closing and writing of links.

use super::application::Application;
use super::core::Core;
use super::event::{CircuitNumber, Loss};
use super::link::Link;
use crate::cell::{CircId, Command};
use crate::cell_model::{Body, Cell, CellModel};
use crate::circuit::NextHop;
use crate::node::{CloseCause, ConnId, Dial, Security};
use crate::time::Instant;
use alloc::string::String;
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Creates a link to a first hop.
    pub(super) fn dial(&mut self, first: NextHop, is_own: bool) -> ConnId {
        let conn = ConnId(self.dialled);
        self.dialled += 1;
        self.links.insert(conn, Link::new(first, is_own));
        self.to_dial.push_back(Dial { conn, to: first.address, security: Security::Tls });
        conn
    }

    /// The link handshake of a dialled link is complete. `has_feedback` if both sides report forwarded cells
    /// ([`LinkProtocol::V5WithFeedback`](crate::cell::LinkProtocol::V5WithFeedback)).
    pub fn handle_link_open(&mut self, now: Instant, conn: ConnId, has_feedback: bool) {
        self.now = now;
        let Some(link) = self.links.get_mut(&conn) else { return };
        link.is_open = true;
        link.has_feedback = has_feedback;
        let waiting: Vec<(CircId, CircuitNumber)> =
            link.circuits.iter().map(|(circ_id, number)| (*circ_id, *number)).collect();
        waiting.into_iter().for_each(|(circ_id, number)| self.create(number, conn, circ_id));
    }

    /// A link was closed or could not be established.
    pub fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.now = now;
        self.lose_link(conn, &Loss::Link(cause));
    }

    /// The peer of a link violates the link protocol: the link is closed.
    pub fn handle_broken(&mut self, now: Instant, conn: ConnId, problem: String) {
        self.now = now;
        self.lose_link(conn, &Loss::Channel(problem));
        self.to_close.push_back(conn);
    }

    fn lose_link(&mut self, conn: ConnId, cause: &Loss) {
        let Some(link) = self.links.remove(&conn) else { return };
        for (circ_id, circuit) in link.circuits {
            let passage = self.passages.get(&circuit);
            let place = passage
                .and_then(|passage| passage.place(conn, circ_id).map(|at| passage.legs[at].leg));
            if let Some(leg) = place {
                self.lose_leg(circuit, leg, cause.clone());
            }
        }
    }

    /// Closes links without circuits.
    pub fn close_idle(&mut self) {
        for (conn, link) in &mut self.links {
            if link.circuits.is_empty() && !core::mem::replace(&mut link.is_closing, true) {
                self.to_close.push_back(*conn);
            }
        }
    }

    /// The next link to establish.
    #[must_use]
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.to_dial.pop_front()
    }

    /// The next link with cells to send.
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

    /// The next link to close.
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
