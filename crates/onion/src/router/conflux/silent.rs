//! Legs that are silent, though nobody breaks a link: the client is told, who alone gives legs up.

use crate::cell::msg::ConfluxNote;
use crate::cell::relay::RelayCommand;
use crate::router::circuits::{CircuitIndex, TunnelIndex};
use crate::router::{Conduct, Core};
use crate::suite::{StreamId, Suite};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: Suite, R: Rng, C: Conduct<S>> Core<S, R, C> {
    /// Tells clients, on their other legs, of those that keep sets waiting. Every few seconds.
    pub(in crate::router) fn look_at_sets(&mut self) {
        for (tunnel, leg) in self.sets.take_silent(self.outputs.now()) {
            self.tell_silent(tunnel, leg);
        }
    }

    /// A leg has kept the others waiting for too long.
    pub(super) fn tell_silent(&mut self, tunnel: TunnelIndex, silent: CircuitIndex) {
        let Some(set) = self.sets.all.get(&tunnel) else { return };
        let Some(number) = set.conflux.number_of(silent) else { return };
        let others: Vec<_> = set.conflux.legs().filter(|leg| *leg != silent).collect();
        let mut data = Vec::new();
        ConfluxNote::Gone(&[number]).encode_into(&mut data);
        for leg in others {
            self.originate(leg, RelayCommand::CONFLUX_LINKED_ACK, StreamId::CIRCUIT, &data);
        }
    }
}
