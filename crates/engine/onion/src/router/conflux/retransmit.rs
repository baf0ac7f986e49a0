//! Retransmission of messages that a lost leg did not deliver (proposal 329 §2.7).

use super::sets::Held;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell_model::{Body, CellModel, Layer, Message};
use crate::router::circuits::{CircuitIndex, Hop, QueueId, TunnelIndex};
use crate::router::{Behavior, Core};
use alloc::boxed::Box;
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    pub(super) fn tunnel_of_leg(&self, leg: CircuitIndex) -> Option<TunnelIndex> {
        self.circuits.get(leg)?.end.as_ref().map(|end| end.tunnel)
    }

    /// Keeps a copy of a message that was sent on a leg, if its set retransmits.
    pub(crate) fn keep(
        &mut self,
        leg: CircuitIndex,
        format: RelayFormat,
        body: &S::Body,
        is_marked: bool,
    ) {
        let now = self.outputs.now();
        let Some(tunnel) = self.tunnel_of_leg(leg) else { return };
        let held = Held { leg: None, format, body: Box::new(body.clone()) };
        self.sets.change(now, tunnel, |set| set.conflux.keep(leg, held, is_marked));
    }

    /// A SENDME has arrived on a leg.
    pub(crate) fn handle_leg_acknowledged(&mut self, leg: CircuitIndex) {
        let Some(tunnel) = self.tunnel_of_leg(leg) else { return };
        self.sets.change(self.outputs.now(), tunnel, |set| set.conflux.handle_acknowledged(leg));
        self.resend(leg);
    }

    /// Retransmits messages of lost legs as far as the windows allow.
    pub(crate) fn resend(&mut self, leg: CircuitIndex) {
        let now = self.outputs.now();
        let Some(tunnel) = self.tunnel_of_leg(leg) else { return };
        while let Some(set) = self.sets.all.get(&tunnel)
            && set.conflux.next_lost().is_some()
            && let Some(leg) = self.leg_for_data(tunnel)
        {
            let taken = self.sets.change(now, tunnel, |set| set.conflux.take_lost(leg)).flatten();
            let Some((skipped, held)) = taken else { return };
            if let Some(skipped) = skipped {
                self.switch(leg, skipped);
            }
            let Some(circuit) = self.circuits.get_mut(leg) else { return };
            let (Hop::Relay(layer), Some(end)) = (&mut circuit.hop, &mut circuit.end) else {
                return;
            };
            let (id, queue) = (QueueId::backward(leg), &mut circuit.backward_queue);
            self.outputs.enqueue(&mut self.conns, circuit.back, id, queue, |body| {
                body.clone_from(&held.body);
                layer.originate(body);
                true
            });
            let message = held.body.message(held.format);
            let is_data = matches!(message, Ok(Message { command: RelayCommand::DATA, .. }));
            let is_marked = is_data && end.leg.flow.handle_sent(now, || layer.sent_tag());
            if let Some(cells) = end.leg.handle_packaged(queue.len()) {
                queue.watch(cells);
            }
            self.totals.conflux_resent += 1;
            self.sets.change(now, tunnel, |set| set.conflux.keep(leg, held, is_marked));
        }
    }
}
