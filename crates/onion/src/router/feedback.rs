//! Windows from hop to hop, between relays: FEEDBACK, as it comes and as it goes (`docs/protocol.md`).
//!
//! On a link that has them, each side counts the relay cells of each circuit that it gives to the other, and hears how many of them have
//! gone on from there, or were for that relay. A window of [`flow::hop`](crate::flow::hop) says how many may be under way. Where it is
//! full, the circuit leaves its link's turns ([`schedule`](super::schedule)), and its cells wait here; those that still come wait
//! at the hop before, whose window fills up in turn, back to where they come from.
//!
//! A link of a stock relay or of a stock client has none of this. Cells that come by it are told to nobody, and cells that leave by it
//! have no bound but those of the circuit's ends: there a circuit is controlled end to end, as everywhere in Tor.
//!
//! # Bounds
//! Both sides count the same cells, so what is said can be checked to the cell. A peer that says it has passed on more than it got, on a
//! circuit or on all that are gone, loses the link. One that says too little holds up the circuits that lead over it, which any relay can
//! do; what waits for it is bounded as all queues are. What it is to be told takes a place for each of its circuits, however slowly it reads.

use super::cells::Violation;
use super::circuits::{CircuitIndex, Direction, OnLink};
use super::links::Control;
use super::{Behavior, Core, RouterEvent};
use crate::cell::msg::PassedOn;
use crate::cell::{CircId, Command};
use crate::cell_model::CellModel;
use crate::flow::hop::Excess;
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Whether windows from hop to hop are offered to those at the other ends of links.
    #[must_use]
    pub const fn has_hop_windows(&self) -> bool {
        self.has_hop_windows
    }

    /// A FEEDBACK cell has come on a link: the other side has passed cells on. False if the link is ours no more. On a link without
    /// windows it means nothing, as any cell that is not known.
    pub fn handle_feedback(&mut self, now: Instant, conn: ConnId, body: &[u8]) -> bool {
        self.outputs.set_now(now);
        let Some(link) = self.conns.link(conn) else { return false };
        if !link.has_feedback {
            return true;
        }
        let peer = link.peer().map(|ids| ids.rsa);
        let Err(problem) = self.obey_feedback(conn, body) else { return true };
        self.totals.feedback_refused += 1;
        self.tell_of_some(RouterEvent::FeedbackRefused { peer, problem });
        self.handle_violation(now, conn, problem);
        false
    }

    fn obey_feedback(&mut self, conn: ConnId, body: &[u8]) -> Result<(), Violation> {
        let entries = PassedOn::parse(body).map_err(|malformed| malformed.problem)?;
        for PassedOn { circ_id, cells } in entries {
            self.handle_passed_on(OnLink { conn, circ_id }, cells.into())?;
        }
        Ok(())
    }

    /// The next hop has passed cells of a circuit on: it may get more of them.
    fn handle_passed_on(&mut self, at: OnLink, cells: u32) -> Result<(), Violation> {
        let Some(link) = self.conns.link_mut(at.conn) else { return Ok(()) };
        let Some((index, from)) = link.circuits.find(at.circ_id) else {
            // It may have said so before it heard that the circuit is gone.
            link.stray_cells = link.stray_cells.checked_sub(cells.into()).ok_or(Excess::PROBLEM)?;
            return Ok(());
        };
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        // What comes from there goes one way; what went there goes the other.
        let direction = from.other();
        let queue = circuit.queue_mut(direction);
        let outcome = queue.handle_feedback(self.outputs.now(), cells);
        let is_released = outcome.map_err(|Excess| Excess::PROBLEM)?;
        self.totals.passed_on_cells += u64::from(cells);
        if is_released {
            let released = (queue.len(), queue.cell_count);
            self.outputs.handle_released(&mut self.conns, at.conn, (index, direction), released);
        }
        Ok(())
    }

    /// A circuit has a full queue, and is about to be destroyed. If its cells wait for the word of a next hop that is silent, that one is
    /// named; one that speaks is only slower than what comes.
    #[cold]
    pub(super) fn note_stalled(&mut self, index: CircuitIndex, direction: Direction) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if !circuit.queue_mut(direction).is_stalled(self.outputs.now()) {
            return;
        }
        // Where they go is where those of the other way come from.
        let next = circuit.way_in(direction.other());
        let link = next.and_then(|next| self.conns.link(next.conn));
        let peer = link.and_then(|link| link.peer()).map(|ids| ids.rsa);
        self.totals.stalled_circuits += 1;
        self.tell_of_some(RouterEvent::CircuitStalled { peer });
    }

    /// A link whose other side is to be told that cells have passed.
    #[inline]
    pub(super) fn poll_teller(&mut self) -> Option<ConnId> {
        let mut is_somebody = false;
        while let Some((index, direction)) = self.outputs.poll_passed() {
            let from = self.circuits.get(index).and_then(|circuit| circuit.way_in(direction));
            let Some(from) = from else { continue };
            let Some(output) = self.conns.output_mut(from.conn) else { continue };
            output.note_to_tell(index, direction);
            self.outputs.wake(&mut self.conns, from.conn);
            is_somebody = true;
        }
        is_somebody.then(|| self.outputs.poll_writable(&mut self.conns)).flatten()
    }

    /// Tells the other side of a link which cells have passed.
    pub(super) fn poll_feedback(&mut self, conn: ConnId) -> Option<Control> {
        let mut to_tell = core::mem::take(&mut self.conns.output_mut(conn)?.to_tell);
        let body = PassedOn::tell(&mut to_tell, |(index, direction)| {
            let circuit = self.circuits.get_mut(index)?;
            let from = circuit.way_in(direction).filter(|from| from.conn == conn)?;
            Some(PassedOn {
                circ_id: from.circ_id,
                cells: circuit.queue_mut(direction).take_untold(),
            })
        });
        if let Some(output) = self.conns.output_mut(conn).filter(|_| !to_tell.is_empty()) {
            output.to_tell = to_tell;
        }
        let (circ_id, command) = (CircId::LINK, Command::FEEDBACK);
        Some(Control { circ_id, command, body: body?.into() })
    }
}
