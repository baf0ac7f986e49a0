//! Circuit teardown.

use super::{CircuitIndex, Hop, NextLink, OnLink, QueueId};
use crate::cell::Command;
use crate::cell::msg::DestroyReason;
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, StreamId};
use crate::node::ConnId;
use crate::router::{Behavior, Core};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Refuses a circuit that does not exist yet, or has an unknown ID.
    pub(crate) fn refuse(&mut self, at: OnLink, reason: DestroyReason) {
        self.control(at, Command::DESTROY, &[reason.get()]);
    }

    /// Destroys a circuit. Sends DESTROY to both sides, except to `but` and to links that are gone.
    pub(crate) fn destroy(
        &mut self,
        index: CircuitIndex,
        reason: DestroyReason,
        but: Option<OnLink>,
    ) {
        self.stop_waiting(index);
        let Some(circuit) = self.circuits.remove(index) else { return };
        self.measurement_circuits -= usize::from(matches!(circuit.hop, Hop::Echo(_)));
        let others = match &circuit.end {
            Some(end) if end.is_linked => self.unlink(index, end),
            Some(end) => {
                self.end_tunnel(end.tunnel);
                Vec::new()
            }
            None => Vec::new(),
        };
        for (at, queue) in circuit.queues() {
            self.outputs.handle_dropped(&mut self.conns, at.conn, queue.len(), queue.is_blocked());
            let Some(link) = self.conns.link_mut(at.conn) else { continue };
            link.circuits.remove(at.circ_id);
            link.stray_cells += u64::from(queue.in_flight());
            if but != Some(at) {
                self.refuse(at, reason);
            }
        }
        for other in others {
            self.destroy(other, DestroyReason::FINISHED, None);
        }
    }

    /// One side has destroyed a circuit. The other side is sent DESTROY without the reason: reasons would let
    /// the two sides communicate past the client.
    pub(crate) fn handle_destroy(&mut self, index: CircuitIndex, from: OnLink) {
        self.destroy(index, DestroyReason::DESTROYED, Some(from));
    }

    /// The origin truncates the circuit.
    pub(crate) fn truncate(&mut self, index: CircuitIndex) {
        self.stop_waiting(index);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let next_link = core::mem::replace(&mut circuit.next_link, NextLink::None);
        let dropped = circuit.forward_queue.cut();
        if circuit.forward_queue.has_report() {
            self.outputs.note_passed(QueueId::forward(index));
        }
        circuit.backward_queue.forget_previous_hop();
        if let Some(at) = next_link.on_link() {
            let (cells, was_blocked) = (dropped.len(), dropped.is_blocked());
            self.outputs.handle_dropped(&mut self.conns, at.conn, cells, was_blocked);
            if let Some(link) = self.conns.link_mut(at.conn) {
                link.circuits.remove(at.circ_id);
                link.stray_cells += u64::from(dropped.in_flight());
            }
            self.refuse(at, DestroyReason::REQUESTED);
        }
        let reason = [DestroyReason::REQUESTED.get()];
        self.originate(index, RelayCommand::TRUNCATED, StreamId::CIRCUIT, &reason);
    }

    /// A circuit no longer waits for a link, so its number may be reused. A link that no circuit waits for is
    /// no longer dialled.
    fn stop_waiting(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let NextLink::Dialing(conn) = circuit.next_link else { return };
        let Some(link) = self.conns.link_mut(conn) else { return };
        if link.waiting.remove(&index).is_none() {
            return;
        }
        let is_useless = link.is_dial() && link.waiting.is_empty();
        self.waiting -= 1;
        if is_useless {
            self.reject(conn);
        }
    }

    /// A link is gone, and with it its circuits and its part in a measurement.
    pub(crate) fn lose(&mut self, id: ConnId, reason: DestroyReason) {
        let Some(mut link) = self.conns.remove_link(id) else { return };
        self.padder.forget(id, &mut link.padding);
        self.reading.forget(id, &mut link.read_turn);
        if let Some(from) = link.from.filter(|_| link.is_counted) {
            self.client_addresses.handle_closed(from);
        }
        self.handshakes.cancel_link(id);
        self.waiting -= link.waiting.len();
        for index in link.circuits.indices().into_iter().chain(link.waiting.into_keys()) {
            let uses_it = self.circuits.get(index).is_some_and(|circuit| {
                circuit.back.conn == id || circuit.next_link.conn() == Some(id)
            });
            if uses_it {
                self.destroy(index, reason, None);
            }
        }
        self.target.handle_closed(id);
    }
}
