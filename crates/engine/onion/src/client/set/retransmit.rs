//! Retransmission of messages that a lost leg did not deliver (proposal 329 §2.7).

use super::{Held, LinkedSet, leg_state};
use crate::cell::Command;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell_model::{Body, Cell, CellModel, Layers, Message};
use crate::client::application::Application;
use crate::client::circuit::Passage;
use crate::client::core::Core;
use crate::client::event::CircuitNumber;
use rand_core::Rng;

impl<S: CellModel> LinkedSet<S> {
    /// Keeps a message other than data that was sent on a leg, if the set retransmits.
    pub(crate) fn keep(
        &mut self,
        leg: u8,
        format: RelayFormat,
        message: &Message<S::PayloadSlice<'_>>,
    ) {
        if self.conflux.resumes() {
            let mut body = S::Body::from_bytes(&[]);
            if body.write(format, message).is_ok() {
                self.conflux.keep(leg, Held { format, body }, false);
            }
        }
    }

    /// A copy of an unencrypted message to be sent on a leg, if the set retransmits.
    pub(crate) fn copy(&self, format: RelayFormat, body: &S::Body) -> Option<Held<S>> {
        self.conflux.resumes().then(|| Held { format, body: body.clone() })
    }
}

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// A SENDME has arrived on a leg, if it is one.
    pub(crate) fn handle_leg_acknowledged(&mut self, number: CircuitNumber, place: usize) {
        let Some(Passage { legs, set: Some(set), .. }) = self.passages.get_mut(&number) else {
            return;
        };
        if let Some(circuit) = legs.get(place) {
            set.conflux.handle_acknowledged(circuit.leg);
            self.resend(number);
        }
    }

    /// Retransmits messages of lost legs as far as the windows allow.
    pub(crate) fn resend(&mut self, number: CircuitNumber) {
        while let Some(Passage { legs, set: Some(set), .. }) = self.passages.get_mut(&number)
            && set.conflux.next_lost().is_some()
            && let Some(leg) = set.conflux.choose(|leg| leg_state(legs, leg))
        {
            let Some(circuit) = legs.iter_mut().find(|circuit| circuit.leg == leg) else { return };
            let Some((skipped, held)) = set.conflux.take_lost(leg) else { return };
            let conn = circuit.conn;
            let Some(link) = self.links.get_mut(&conn) else { return };
            skipped
                .and_then(|skipped| circuit.seal_switch(skipped))
                .into_iter()
                .for_each(|switch| link.push(switch));
            let circ_id = circuit.circ_id;
            let Some(up) = circuit.up_mut() else { return };
            let is_data = matches!(
                held.body.message(held.format),
                Ok(Message { command: RelayCommand::DATA, .. })
            );
            let mut cell = S::Cell::EMPTY;
            let body = cell.begin(circ_id, Command::RELAY);
            body.clone_from(&held.body);
            up.layers.seal(up.last, Command::RELAY, body);
            let is_marked =
                is_data && up.leg.flow.handle_sent(self.now, || up.layers.sent_tag(up.last));
            link.push(cell);
            set.conflux.keep(leg, held, is_marked);
            self.schedule_leg_check();
            self.wake(conn);
        }
    }
}
