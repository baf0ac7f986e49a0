//! The target's side of a measurement.

use super::circuits::{CircuitIndex, Hop, OnLink, QueueId};
use super::links::{Outputs, Role};
use super::{Behavior, Core, RouterEvent, Violation};
use crate::cell::msg::DestroyReason;
use crate::cell::{CircId, Command};
use crate::cell_model::{Body, CellModel, EchoLayer};
use crate::measure::protocol::{ErrorCode, Message};
use crate::measure::target::{Refusal, TargetEvent};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles a message of the measurement protocol: the content of a MEASURE cell. Returns false if the link
    /// is closed.
    pub fn handle_measure(&mut self, now: Instant, conn: ConnId, message: &[u8]) -> bool {
        self.outputs.set_now(now);
        if self.behavior.understands_measurements() {
            self.obey_message(conn, message);
        }
        self.drain_target();
        self.conns.link(conn).is_some()
    }

    fn obey_message(&mut self, id: ConnId, body: &[u8]) {
        let Some(link) = self.conns.link(id) else { return };
        let (role, exported) = (link.role, link.exported);
        let refusal = match (Message::parse(body), role, exported) {
            (Err(error), ..) => Refusal { code: ErrorCode::MALFORMED, text: error.to_string() },
            (Ok(Message::Error { code, text }), Role::Measurer, _) => {
                let text = format!("a measurer reports: {code} ({text})");
                self.target.handle_violation(id, text);
                return;
            }
            (Ok(Message::Error { .. }), ..) => {
                self.close(id);
                return;
            }
            (Ok(_), _, None) => {
                let text = String::from("the relay cannot bind signatures to this connection");
                Refusal { code: ErrorCode::OTHER, text }
            }
            (Ok(Message::Order(_)), ..) if self.is_shutting_down => {
                let text = String::from("the relay is shutting down");
                Refusal { code: ErrorCode::NOT_ALLOWED, text }
            }
            (Ok(Message::Order(order)), Role::Ordinary | Role::Coordinator, Some(exported)) => {
                let (now, unix_time_s) = (self.outputs.now(), self.unix_time_s());
                match self.target.handle_order(now, unix_time_s, id, &exported, &order) {
                    Ok(accepted) => {
                        self.set_role(id, Role::Coordinator);
                        self.send_message(id, &Message::Accepted { nonce: accepted.nonce });
                        self.report(RouterEvent::MeasurementAccepted(accepted));
                        return;
                    }
                    Err(refusal) => refusal,
                }
            }
            (Ok(Message::Proof(proof)), Role::Ordinary, Some(exported)) => {
                match self.prove(id, &exported, &proof) {
                    Ok(()) => {
                        self.set_role(id, Role::Measurer);
                        Outputs::set_measurers(&mut self.conns, id);
                        self.send_message(id, &Message::Proven);
                        return;
                    }
                    Err(refusal) => refusal,
                }
            }
            (Ok(_), ..) => Refusal::new(ErrorCode::OUT_OF_ORDER),
        };
        self.target.handle_violation(id, format!("a party broke the rules: {}", refusal.code));
        self.refuse_link(id, &refusal);
    }

    fn prove(
        &mut self,
        id: ConnId,
        exported: &[u8; 32],
        proof: &crate::measure::protocol::Proof,
    ) -> Result<(), Refusal> {
        // Circuits of a client would be counted for the measurement, also those that begin when the computation of
        // their handshake completes.
        let has_circuits = self.conns.link(id).is_some_and(|link| link.circuits.len() > 0);
        if has_circuits || self.handshakes.has_any_of(id) {
            return Err(Refusal::new(ErrorCode::OUT_OF_ORDER));
        }
        self.target.handle_proof(id, exported, proof)
    }

    fn set_role(&mut self, id: ConnId, role: Role) {
        if let Some(link) = self.conns.link_mut(id) {
            link.role = role;
            self.padder.consider(id, link);
        }
        if role == Role::Measurer {
            self.reading.exempt(&mut self.conns, id);
        }
    }

    fn send_message(&mut self, id: ConnId, message: &Message) {
        let at = OnLink { conn: id, circ_id: CircId::LINK };
        self.control(at, Command::MEASURE, &message.encode());
    }

    /// Sends the reason and closes the link.
    fn refuse_link(&mut self, id: ConnId, refusal: &Refusal) {
        let Refusal { code, text } = refusal.clone();
        self.report_limited(RouterEvent::MeasurementRefused(refusal.clone()));
        self.send_message(id, &Message::Error { code, text });
        self.close(id);
    }

    /// The peer of a link has sent something that is not a stream of cells, or a party of a measurement has
    /// broken its rules: discards everything and closes the link.
    pub fn handle_violation(&mut self, now: Instant, conn: ConnId, violation: Violation) {
        self.outputs.set_now(now);
        self.target.handle_violation(conn, violation.to_string());
        self.drain_target(); // so that it still receives the reason
        self.close(conn);
        self.drain_target();
    }

    /// Performs what the measurement asks for.
    pub(super) fn drain_target(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Report { conn, second, ended, measured_bytes, sent_back } => {
                    let reported = self.behavior.report(second, measured_bytes);
                    let sent_back = self.behavior.report_sent_back(sent_back);
                    self.send_message(conn, &Message::ClientSecond(reported, sent_back));
                    let client_bytes = second.sent_bytes;
                    let event = RouterEvent::MeasuredSecond { ended, measured_bytes, client_bytes };
                    self.report(event);
                }
                TargetEvent::Over { coordinator, measurers, refusal } => {
                    self.end_measurement(coordinator, &measurers, refusal);
                }
            }
        }
    }

    /// Handles a cell of a measurement circuit: removes the layer and returns the cell.
    #[inline]
    pub(super) fn echo(&mut self, index: CircuitIndex, body: &S::Body) -> Result<(), Violation> {
        self.target.handle_measurement_cell(self.outputs.now());
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        let Hop::Echo(layer) = &mut circuit.hop else { return Ok(()) };
        if self.behavior.drops_answer() {
            layer.apply(&mut body.clone());
            return Ok(());
        }
        let queue = &mut circuit.backward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return Ok(());
        }
        let (back, id) = (circuit.back, QueueId::backward(index));
        self.outputs.enqueue(&mut self.conns, back, id, queue, |echoed| {
            echoed.clone_from(body);
            self.behavior.answer(&mut self.rng, layer, echoed);
            true
        });
        self.send_unsolicited(back.conn);
        Ok(())
    }

    /// Sends unsolicited cells: an honest relay sends none.
    #[inline]
    pub(super) fn send_unsolicited(&mut self, conn: ConnId) {
        for _ in 0..self.behavior.unsolicited_cells() {
            self.control(OnLink { conn, circ_id: CircId::LINK }, Command::PADDING, &[]);
        }
    }

    /// Fabricates answers to cells that have not arrived: an honest relay sends none.
    pub(super) fn fabricate_answers(&mut self, index: CircuitIndex) {
        let mut seed = [0; 16];
        for _ in 0..self.behavior.fabricated_answers() {
            self.rng.fill_bytes(&mut seed);
            let Some(circuit) = self.circuits.get_mut(index) else { return };
            let (id, queue) = (QueueId::backward(index), &mut circuit.backward_queue);
            self.outputs.enqueue(&mut self.conns, circuit.back, id, queue, |body| {
                body.forge(&seed);
                true
            });
        }
    }

    fn end_measurement(
        &mut self,
        coordinator: Option<ConnId>,
        measurers: &BTreeSet<ConnId>,
        refusal: Option<Refusal>,
    ) {
        for id in measurers {
            if let Some(Refusal { code, text }) = refusal.clone() {
                self.send_message(*id, &Message::Error { code, text });
            }
            self.close(*id);
        }
        if let (Some(id), Some(refusal)) = (coordinator, &refusal) {
            // Unless it broke the rules itself: then it has been notified.
            if self.conns.link(id).is_some() {
                self.refuse_link(id, refusal);
            }
        } else if let Some(id) = coordinator {
            // It may order another measurement on the same link.
            self.set_role(id, Role::Ordinary);
        }
        self.report(RouterEvent::MeasurementOver(refusal));
        self.outputs.wake_held(&mut self.conns, usize::MAX);
    }
}

#[cfg(test)]
mod tests;
