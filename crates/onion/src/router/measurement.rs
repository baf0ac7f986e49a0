//! The target's part of a measurement on the router's links.

use super::cells::Violation;
use super::circuits::{CircuitIndex, Direction, Hop, OnLink};
use super::links::{Outputs, Role};
use super::{Behavior, Core, RouterEvent};
use crate::cell::msg::DestroyReason;
use crate::cell::{CircId, Command};
use crate::cell_model::{Body, Cell, CellModel, EchoLayer};
use crate::measure::protocol::{ErrorCode, Message};
use crate::measure::target::{Refusal, TargetEvent};
use crate::node::ConnId;
use crate::time::Instant;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// A message of the measurement's protocol has come on a link: the content of a MEASURE cell. False if
    /// the link is ours no more.
    pub fn handle_measure(&mut self, now: Instant, conn: ConnId, message: &[u8]) -> bool {
        self.outputs.set_now(now);
        if self.behavior.hears_of_measurements() {
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
                let text = format!("a measurer says: {code} ({text})");
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
                        self.tell(RouterEvent::MeasurementAccepted(accepted));
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
        // Circuits that began as a client's would be counted as the measurement's.
        if self.conns.link(id).is_some_and(|link| link.circuits.len() > 0) {
            return Err(Refusal::new(ErrorCode::OUT_OF_ORDER));
        }
        self.target.handle_proof(id, exported, proof)
    }

    fn set_role(&mut self, id: ConnId, role: Role) {
        if let Some(link) = self.conns.link_mut(id) {
            link.role = role;
            self.padder.consider(id, link);
        }
    }

    fn send_message(&mut self, id: ConnId, message: &Message) {
        let at = OnLink { conn: id, circ_id: CircId::LINK };
        self.control(at, Command::MEASURE, &message.encode());
    }

    /// Says why, and closes.
    fn refuse_link(&mut self, id: ConnId, refusal: &Refusal) {
        let Refusal { code, text } = refusal.clone();
        let detail = if text.is_empty() { String::new() } else { format!(" ({text})") };
        self.tell_refused(format!("{code}{detail}"));
        self.send_message(id, &Message::Error { code, text });
        self.close(id);
    }

    /// What comes on a link is no stream of cells, or a party of a measurement does what it must not:
    /// everything is dropped, and the link is closed.
    pub fn handle_violation(&mut self, now: Instant, conn: ConnId, problem: Violation) {
        self.outputs.set_now(now);
        self.target.handle_violation(conn, problem.to_string());
        self.drain_target(); // so that it still hears why
        self.close(conn);
        self.drain_target();
    }

    /// Does what the measurement asks for.
    pub(super) fn drain_target(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Report { conn, second, ended, measured_bytes, sent_back } => {
                    let told = self.behavior.report(second, measured_bytes);
                    let sent_back = self.behavior.report_sent_back(sent_back);
                    self.send_message(conn, &Message::ClientSecond(told, sent_back));
                    let client_bytes = second.sent_bytes;
                    let event = RouterEvent::MeasuredSecond { ended, measured_bytes, client_bytes };
                    self.tell(event);
                }
                TargetEvent::Over { coordinator, measurers, refusal } => {
                    self.end_measurement(coordinator, &measurers, refusal);
                }
            }
        }
    }

    /// A cell of a measurement circuit: its layer comes off, and it goes back.
    #[inline]
    pub(super) fn echo(&mut self, index: CircuitIndex, body: &S::Body) -> Result<(), Violation> {
        self.target.handle_measurement_cell(self.outputs.now());
        let Some(circuit) = self.circuits.get_mut(index) else { return Ok(()) };
        let Hop::Echo(layer) = &mut circuit.hop else { return Ok(()) };
        if self.behavior.swallows() {
            layer.apply(&mut body.clone());
            return Ok(());
        }
        let queue = &mut circuit.backward_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            return Ok(());
        }
        let enqueued = queue.next_enqueued();
        let echoed = queue.push(self.outputs.now()).begin(circuit.back.circ_id, Command::RELAY);
        echoed.clone_from(body);
        self.behavior.answer(&mut self.rng, layer, echoed);
        let conn = circuit.back.conn;
        self.outputs.handle_queued(&mut self.conns, conn, (index, Direction::Backward), enqueued);
        self.send_unsolicited(conn);
        Ok(())
    }

    /// Sends cells that nobody has asked for: an honest relay has none.
    #[inline]
    pub(super) fn send_unsolicited(&mut self, conn: ConnId) {
        for _ in 0..self.behavior.unsolicited() {
            self.control(OnLink { conn, circ_id: CircId::LINK }, Command::PADDING, &[]);
        }
    }

    /// Answers to cells that have not come yet: an honest relay has none.
    pub(super) fn answer_ahead(&mut self, index: CircuitIndex) {
        let mut seed = [0; 16];
        for _ in 0..self.behavior.answers_ahead() {
            self.rng.fill_bytes(&mut seed);
            let Some(circuit) = self.circuits.get_mut(index) else { return };
            let queue = &mut circuit.backward_queue;
            let enqueued = queue.next_enqueued();
            let cell = queue.push(self.outputs.now());
            cell.begin(circuit.back.circ_id, Command::RELAY).forge(&seed);
            let conn = circuit.back.conn;
            self.outputs.handle_queued(
                &mut self.conns,
                conn,
                (index, Direction::Backward),
                enqueued,
            );
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
            // Unless it broke the rules itself: then it has been told.
            if self.conns.link(id).is_some() {
                self.refuse_link(id, refusal);
            }
        } else if let Some(id) = coordinator {
            // It may order another measurement on the same link.
            self.set_role(id, Role::Ordinary);
        }
        let why = refusal.map(|refusal| format!("{} {}", refusal.code, refusal.text));
        self.tell(RouterEvent::MeasurementOver(why));
        self.outputs.wake_held(&mut self.conns, usize::MAX);
    }
}
