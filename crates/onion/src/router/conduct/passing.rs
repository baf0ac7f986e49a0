//! What becomes of cells that an honest relay would pass on.

use super::{Conduct, Passing};
use crate::cell::Command;
use crate::cell::msg::DestroyReason;
use crate::node::ConnId;
use crate::router::Core;
use crate::router::circuits::{CircuitIndex, Onward, Way};
use crate::suite::{Cell, Suite};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: Suite, R: Rng, C: Conduct<S>> Core<S, R, C> {
    /// Does with a cell that was queued for the next hop what no honest relay does.
    #[cold]
    pub(in crate::router) fn pass_dishonestly(&mut self, index: CircuitIndex, passing: Passing) {
        match passing {
            Passing::On => {}
            Passing::OnWith(cells) => (0..cells).for_each(|_| self.add_cell(index)),
            // Its link does not know of it yet.
            Passing::Dropped => {
                if let Some(circuit) = self.circuits.get_mut(index) {
                    circuit.forth_queue.unpush();
                }
            }
            Passing::EndsCircuits(reason) => {
                let all: Vec<CircuitIndex> = self.circuits.iter().map(|(index, _)| index).collect();
                all.into_iter().for_each(|index| self.destroy(index, reason, None));
            }
            Passing::ClosesLinks => {
                let all: Vec<ConnId> = self.conns.links().map(|(id, _)| id).collect();
                all.into_iter().for_each(|id| self.close(id));
            }
        }
    }

    /// Queues a cell of the relay's own making for the next hop.
    fn add_cell(&mut self, index: CircuitIndex) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Onward::Open(out) = circuit.onward else { return };
        let queue = &mut circuit.forth_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return;
        }
        let joined = queue.joining();
        let added = queue.push(self.outputs.now()).begin(out.circ_id, Command::RELAY);
        self.conduct.add(&mut self.rng, circuit.back, added);
        self.outputs.handle_queued(&mut self.conns, out.conn, (index, Way::Forth), joined);
    }
}

#[cfg(test)]
mod tests;
