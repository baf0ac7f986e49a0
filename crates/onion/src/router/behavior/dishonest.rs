//! What becomes of cells that an honest relay would pass on.

use super::{Behavior, ForwardAction};
use crate::cell::Command;
use crate::cell::msg::DestroyReason;
use crate::cell_model::{Cell, CellModel};
use crate::node::ConnId;
use crate::router::Core;
use crate::router::circuits::{CircuitIndex, Direction, NextLink};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Does with a cell that was queued for the next hop what no honest relay does.
    #[cold]
    pub(in crate::router) fn forward_dishonestly(
        &mut self,
        index: CircuitIndex,
        action: ForwardAction,
    ) {
        match action {
            ForwardAction::Forward => {}
            ForwardAction::ForwardWith(cells) => (0..cells).for_each(|_| self.add_cell(index)),
            // Its link does not know of it yet.
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

    /// Queues a cell of the relay's own making for the next hop.
    fn add_cell(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let NextLink::Open(out) = circuit.next_link else { return };
        let queue = &mut circuit.forward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return;
        }
        let enqueued = queue.next_enqueued();
        let added = queue.push(self.outputs.now()).begin(out.circ_id, Command::RELAY);
        self.behavior.add(&mut self.rng, circuit.back, added);
        self.outputs.handle_queued(
            &mut self.conns,
            out.conn,
            (index, Direction::Forward),
            enqueued,
        );
    }
}

#[cfg(test)]
mod tests;
