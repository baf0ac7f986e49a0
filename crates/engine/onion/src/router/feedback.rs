//! Hop-by-hop windows between relays: incoming and outgoing FEEDBACK cells (`docs/protocol.md`).
//!
//! On a link with hop-by-hop windows, each side counts the relay cells of each circuit that it sends, and the
//! peer reports how many of them it has forwarded or consumed. A window of [`flow::hop`](crate::flow::hop)
//! limits the cells in flight. If it is full, the circuit leaves its link's circuit mux
//! ([`schedule`](super::schedule)) and its cells stay queued here. New cells then fill the window of the
//! previous hop, and so on back to the source.
//!
//! A link to an unmodified relay or client has none of this. Cells from it are not reported, and cells to it
//! are limited end to end only, as everywhere in Tor.
//!
//! # Bounds
//! Both sides count the same cells, so a report can be checked exactly. A peer that reports more cells than it
//! got, on a circuit or on all closed circuits together, loses the link. A peer that reports too few delays the
//! circuits on that link, which any relay can do; the queues are bounded as all queues are. Unsent reports
//! occupy one entry for each circuit, however slowly the peer reads.
//!
//! # Why a version of the link protocol
//!
//! Hop-by-hop windows are negotiated by a link protocol version and not by a cell that C tor ignores, for three
//! reasons. Tor itself introduced link properties in this way (padding is version 5). The negotiation is
//! complete before the first cell of a circuit: a cell would race with circuits being created, and both ends
//! would have to agree on which of them began before it. And tor-spec defines how unmodified peers treat an
//! unknown number, and C tor and Arti follow it. VPADDING with content would be a covert use of cells whose
//! content no one may inspect.

use super::circuits::{CircuitIndex, Direction, OnLink, QueueId};
use super::links::Control;
use super::{Behavior, Core, RouterEvent, Violation};
use crate::cell::msg::FeedbackEntry;
use crate::cell::{CircId, Command};
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::time::Instant;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Whether hop-by-hop windows are offered to peers.
    #[must_use]
    pub const fn has_hop_windows(&self) -> bool {
        self.has_hop_windows
    }

    /// Handles a FEEDBACK cell. Returns false if the link is closed. On a link without windows it is ignored,
    /// like any unknown cell.
    pub fn handle_feedback(&mut self, now: Instant, conn: ConnId, body: &[u8]) -> bool {
        self.outputs.set_now(now);
        let Some(link) = self.conns.link(conn) else { return false };
        if !link.has_feedback {
            return true;
        }
        let peer = link.peer().map(|ids| ids.rsa);
        let Err(violation) = self.obey_feedback(conn, body) else { return true };
        self.totals.feedback_refused += 1;
        self.report_limited(RouterEvent::FeedbackRefused { peer, violation });
        self.handle_violation(now, conn, violation);
        false
    }

    fn obey_feedback(&mut self, conn: ConnId, body: &[u8]) -> Result<(), Violation> {
        let entries = FeedbackEntry::parse(body)
            .map_err(|malformed| Violation::MalformedFeedback(malformed.problem))?;
        for FeedbackEntry { circ_id, cells } in entries {
            self.handle_passed_on(OnLink { conn, circ_id }, cells.into())?;
        }
        Ok(())
    }

    /// The next hop reports forwarded cells of a circuit.
    fn handle_passed_on(&mut self, at: OnLink, cells: u32) -> Result<(), Violation> {
        let Some(link) = self.conns.link_mut(at.conn) else { return Ok(()) };
        let Some((index, from)) = link.circuits.find(at.circ_id) else {
            // The peer may have sent the report before it received DESTROY.
            link.stray_cells =
                link.stray_cells.checked_sub(cells.into()).ok_or(Violation::ExcessFeedback)?;
            return Ok(());
        };
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        // The report concerns cells of the opposite direction.
        let direction = from.other();
        let queue = circuit.queue_mut(direction);
        let is_released = queue.handle_feedback(self.outputs.now(), cells)?;
        self.totals.passed_on_cells += u64::from(cells);
        if is_released {
            let id = QueueId { index, direction };
            self.outputs.handle_released(&mut self.conns, at.conn, id, queue);
        }
        Ok(())
    }

    /// Before a circuit with a full queue is destroyed: reports the next hop if it has not reported any cells
    /// for seconds. A next hop that reports is only slower than the input.
    #[cold]
    pub(super) fn note_stalled(&mut self, index: CircuitIndex, direction: Direction) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if !circuit.queue_mut(direction).is_stalled(self.outputs.now()) {
            return;
        }
        // The cells' next hop is the source of the opposite direction.
        let next = circuit.way_in(direction.other());
        let link = next.and_then(|next| self.conns.link(next.conn));
        let peer = link.and_then(|link| link.peer()).map(|ids| ids.rsa);
        self.totals.stalled_circuits += 1;
        self.report_limited(RouterEvent::CircuitStalled { peer });
    }

    /// A link that has forwarded cells to report.
    #[inline]
    pub(super) fn poll_reporting_link(&mut self) -> Option<ConnId> {
        let mut has_entries = false;
        while let Some(id) = self.outputs.poll_passed() {
            let circuit = self.circuits.get(id.index);
            let from = circuit.and_then(|circuit| circuit.way_in(id.direction));
            let Some(from) = from else { continue };
            let Some(output) = self.conns.output_mut(from.conn) else { continue };
            output.note_unreported(id);
            self.outputs.wake(&mut self.conns, from.conn);
            has_entries = true;
        }
        has_entries.then(|| self.outputs.poll_writable(&mut self.conns)).flatten()
    }

    /// The FEEDBACK cell for a link.
    pub(super) fn poll_feedback(&mut self, conn: ConnId) -> Option<Control> {
        let mut unreported = core::mem::take(&mut self.conns.output_mut(conn)?.unreported);
        let body = FeedbackEntry::encode_cell(&mut unreported, |QueueId { index, direction }| {
            let circuit = self.circuits.get_mut(index)?;
            let from = circuit.way_in(direction).filter(|from| from.conn == conn)?;
            Some(FeedbackEntry {
                circ_id: from.circ_id,
                cells: circuit.queue_mut(direction).take_unreported(),
            })
        });
        if let Some(output) = self.conns.output_mut(conn).filter(|_| !unreported.is_empty()) {
            output.unreported = unreported;
        }
        let (circ_id, command) = (CircId::LINK, Command::FEEDBACK);
        Some(Control { circ_id, command, body: body?.into() })
    }
}
