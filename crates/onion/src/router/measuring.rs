//! The target's part of a measurement on the router's links.

use super::circuit::{Hop, Way};
use super::link::Role;
use super::{Conduct, Router, RouterEvent};
use crate::cell::msg::DestroyReason;
use crate::cell::{CircId, Command};
use crate::crypto::Keystream;
use crate::measure::protocol::{ClientSecond, ErrorCode, Message};
use crate::measure::target::Refusal;
use crate::node::ConnId;
use crate::time::Instant;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use rand_core::Rng;

impl<R: Rng, C: Conduct> Router<R, C> {
    /// A message of the protocol has come on a link.
    pub(super) fn handle_message_cell(&mut self, now: Instant, id: ConnId, body: &[u8]) {
        let Some(link) = self.links.get_mut(id) else { return };
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
            (Ok(Message::Order(order)), Role::Ordinary | Role::Coordinator, Some(exported)) => {
                let unix_time_s = self.unix_time_s(now);
                match self.target.handle_order(now, unix_time_s, id, &exported, &order) {
                    Ok(nonce) => {
                        self.set_role(id, Role::Coordinator);
                        self.send_message(id, &Message::Accepted { nonce });
                        self.tell(RouterEvent::MeasurementAccepted);
                        return;
                    }
                    Err(refusal) => refusal,
                }
            }
            (Ok(Message::Proof(proof)), Role::Ordinary, Some(exported)) => {
                match self.prove(id, &exported, &proof) {
                    Ok(()) => {
                        self.set_role(id, Role::Measurer);
                        self.outputs.set_measurers(id);
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
        if self.links.get_mut(id).is_some_and(|link| link.circuits.len() > 0) {
            return Err(Refusal::new(ErrorCode::OUT_OF_ORDER));
        }
        self.target.handle_proof(id, exported, proof)
    }

    fn set_role(&mut self, id: ConnId, role: Role) {
        if let Some(link) = self.links.get_mut(id) {
            link.role = role;
            self.padder.consider(id, link);
        }
    }

    fn send_message(&mut self, id: ConnId, message: &Message) {
        self.outputs.control(id, CircId::LINK, Command::MEASURE, &message.encode());
    }

    /// Says why, and closes.
    fn refuse_link(&mut self, id: ConnId, refusal: &Refusal) {
        let Refusal { code, text } = refusal.clone();
        let detail = if text.is_empty() { String::new() } else { format!(" ({text})") };
        self.tell_refused(format!("{code}{detail}"));
        self.send_message(id, &Message::Error { code, text });
        self.close(id);
    }

    /// A party of the measurement does what it must not: everything is dropped.
    pub(super) fn violate(&mut self, id: ConnId, problem: &str) {
        self.target.handle_violation(id, problem.to_string());
        self.drain_target(); // so that it still hears why
    }

    /// A cell of a measurement circuit: its layer comes off, and it goes back.
    #[inline]
    pub(super) fn echo(
        &mut self,
        now: Instant,
        number: u32,
        body: &[u8],
    ) -> Result<(), &'static str> {
        self.target.handle_measurement_cell(now);
        let Some(circuit) = self.circuits.get_mut(number) else { return Ok(()) };
        let Hop::Echo(keystream) = &mut circuit.hop else { return Ok(()) };
        if self.conduct.swallows() {
            keystream.apply(&mut [0; crate::cell::BODY_LEN]);
            return Ok(());
        }
        let queue = &mut circuit.back_queue;
        if queue.len() >= self.config.queue_limit_cells as usize {
            self.destroy(number, DestroyReason::RESOURCE_LIMIT, None);
            return Ok(());
        }
        let was_empty = (queue.len() == 0).then_some(queue.recent);
        let (conn, circ_id) = (circuit.back.conn, circuit.back.circ_id);
        let slot = crate::cell::begin_fixed(queue.push(), circ_id, Command::RELAY);
        if let Ok(slot) = slot.try_into() {
            let slot: &mut [u8; crate::cell::BODY_LEN] = slot;
            slot.copy_from_slice(body);
            self.conduct.answer(&mut self.rng, keystream, slot);
        }
        self.outputs.handle_queued(conn, number, Way::Back, was_empty);
        Ok(())
    }

    /// Answers to cells that have not come yet: an honest relay has none.
    pub(super) fn answer_ahead(&mut self, number: u32) {
        let mut source = [0; 16];
        for _ in 0..self.conduct.answers_ahead() {
            self.rng.fill_bytes(&mut source);
            self.queue_cell(number, Way::Back, Command::RELAY, |body| {
                body.fill(0);
                Keystream::new(&source).apply(body);
            });
        }
    }

    pub(super) fn report_second(&mut self, id: ConnId, honest: ClientSecond, measured_bytes: u64) {
        let told = self.conduct.report(honest, measured_bytes);
        self.send_message(id, &Message::ClientSecond(told));
        let client_bytes = honest.sent_bytes;
        self.tell(RouterEvent::MeasuredSecond { measured_bytes, client_bytes });
    }

    pub(super) fn end_measurement(
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
            if self.links.get_mut(id).is_some() {
                self.refuse_link(id, refusal);
            }
        } else if let Some(id) = coordinator {
            // It may order another measurement on the same link.
            self.set_role(id, Role::Ordinary);
        }
        let why = refusal.map(|refusal| format!("{} {}", refusal.code, refusal.text));
        self.tell(RouterEvent::MeasurementOver(why));
        self.outputs.wake_held(usize::MAX);
    }
}
