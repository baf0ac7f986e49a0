//! The router's side of padding.

use crate::cell::{CircId, Command};
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::circuits::OnLink;
use crate::router::links::LinkPeer;
use crate::router::links::upkeep::idle_max;
use crate::router::{Behavior, Core};
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// The link handshake is complete. No cell has been handled on the link before.
    pub fn handle_link_open(&mut self, now: Instant, conn: ConnId, peer: &LinkPeer) {
        self.outputs.set_now(now);
        self.conns.handle_link_open(conn, peer);
        let Some(link) = self.conns.link_mut(conn) else { return };
        // As in C tor: a peer that claims to be a relay, or a machine in the middle, cannot make this relay
        // keep links open.
        let is_relays = link.is_relays() && link.is_canonical;
        link.idle_max = idle_max(&mut self.rng, is_relays, &self.parameters);
        self.padder.consider(conn, link);
        self.create_waiting(conn);
    }

    /// Data has passed on a link in either direction.
    #[inline]
    pub fn handle_transfer(&mut self, now: Instant, conn: ConnId) {
        if let Some(link) = self.conns.link_mut(conn) {
            self.padder.handle_transfer(now, conn, link);
        }
    }

    /// Sends the PADDING cells that are due.
    pub(crate) fn pad_links(&mut self) {
        let now = self.outputs.now();
        while let Some(id) = self.padder.poll(now) {
            let Some(link) = self.conns.link_mut(id) else { continue };
            let is_idle = link.output.is_idle();
            if self.padder.handle_entry(now, id, link, is_idle, &mut self.rng) {
                // Padding is not subject to limits and measurements: it belongs to no circuit.
                let at = OnLink { conn: id, circ_id: CircId::LINK };
                self.control(at, Command::PADDING, &[]);
            }
        }
    }
}
