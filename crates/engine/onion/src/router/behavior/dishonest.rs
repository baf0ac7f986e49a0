//! Dishonest forwarding, for tests.

use super::{Behavior, ForwardAction};
use crate::cell::msg::DestroyReason;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::Core;
use crate::router::circuits::{CircuitIndex, NextLink, QueueId};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Performs an action other than [`ForwardAction::Forward`] on a cell that was just queued for the next
    /// hop.
    #[cold]
    pub(crate) fn forward_dishonestly(&mut self, index: CircuitIndex, action: ForwardAction) {
        match action {
            ForwardAction::Forward => {}
            ForwardAction::ForwardWith(cells) => (0..cells).for_each(|_| self.add_cell(index)),
            // The link has not been notified of the cell yet.
            ForwardAction::Drop => {
                if let Some(circuit) = self.circuits.get_mut(index) {
                    circuit.forward_queue.unpush();
                }
            }
            ForwardAction::DestroyCircuits(reason) => {
                let all: Vec<CircuitIndex> = self.circuits.iter().map(|(index, _)| index).collect();
                all.into_iter().for_each(|index| self.destroy(index, reason, None));
            }
            ForwardAction::CloseLinks => {
                let all: Vec<ConnId> = self.conns.links().map(|(id, _)| id).collect();
                all.into_iter().for_each(|id| self.close(id));
            }
        }
    }

    /// Queues a fabricated cell for the next hop.
    fn add_cell(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let NextLink::Open(out) = circuit.next_link else { return };
        let queue = &mut circuit.forward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return;
        }
        self.outputs.enqueue(&mut self.conns, out, QueueId::forward(index), queue, |added| {
            self.behavior.fabricate(&mut self.rng, circuit.back, added);
            true
        });
    }
}

#[cfg(test)]
mod tests;
