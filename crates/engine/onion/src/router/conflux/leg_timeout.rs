//! Legs that stop delivering although their links are open. The client is notified, since only the client may
//! give up a leg.

use crate::cell::msg::ConfluxNote;
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, StreamId};
use crate::router::circuits::{CircuitIndex, TunnelIndex};
use crate::router::{Behavior, Core};
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Notifies clients, on another leg, of legs that block their sets. Called every few seconds.
    pub(crate) fn check_leg_timeouts(&mut self) {
        for (tunnel, leg) in self.sets.take_timed_out_legs(self.outputs.now()) {
            self.announce_timed_out(tunnel, leg);
        }
    }

    /// A leg has blocked the others for too long.
    pub(super) fn announce_timed_out(&mut self, tunnel: TunnelIndex, silent: CircuitIndex) {
        let Some(set) = self.sets.all.get(&tunnel) else { return };
        let Some(number) = set.conflux.number_of(silent) else { return };
        let others: Vec<_> = set.conflux.legs().filter(|leg| *leg != silent).collect();
        let mut data = Vec::new();
        ConfluxNote::LostLegs(&[number]).encode_into(&mut data);
        for leg in others {
            self.originate(leg, RelayCommand::CONFLUX_LINKED_ACK, StreamId::CIRCUIT, &data);
        }
    }
}
