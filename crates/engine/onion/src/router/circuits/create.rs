//! Circuit creation.

use super::handshakes::Next;
use super::{
    Circuit, CircuitIndex, Direction, HandshakeDone, HandshakeJob, Hop, OnLink, Requester,
};
use crate::cell::Command;
use crate::cell::msg::{Create2, DestroyReason, encode_created2_into};
use crate::cell::relay::RelayFormat;
use crate::cell_model::{Body, CellModel, EchoLayer, HandshakeReply, Layer};
use crate::flow::control::Agreed;
use crate::node::ConnId;
use crate::router::dos::Place;
use crate::router::links::{Link, Role};
use crate::router::{Behavior, Core, Violation};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;

/// Maximum number of circuits on one link of a client; more are refused. Links of relays have no such limit:
/// they carry many clients, and any one of them could lock out the others. Memory bounds them.
const CIRCUITS_PER_LINK_MAX: usize = 10_000;

/// Maximum number of measurement circuits on one link.
const MEASUREMENT_CIRCUITS_PER_LINK_MAX: usize = 16;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Answers CREATE_FAST. An error is a violation of the measurement protocol.
    pub(crate) fn create_fast(&mut self, at: OnLink, body: &S::Body) -> Result<(), Violation> {
        let Some(link) = self.conns.link(at.conn) else { return Ok(()) };
        let (role, count, is_full) = (link.role, link.circuits.len(), is_full(link));
        if role == Role::Measurer && count >= MEASUREMENT_CIRCUITS_PER_LINK_MAX {
            return Err(Violation::TooManyMeasurementCircuits);
        }
        // The order bounds the circuits of a measurement, whatever other peers have open.
        let is_measurers = role == Role::Measurer;
        if is_full
            || !(is_measurers || self.admits_circuit(at.conn))
            || !(self.make_room_for_circuit(at.conn) || is_measurers)
        {
            self.refuse(at, DestroyReason::RESOURCE_LIMIT);
            return Ok(());
        }
        let mut y = [0; 20];
        self.rng.fill_bytes(&mut y);
        let (answer, keys) = S::answer_fast(body, y);
        let hop = match role {
            Role::Measurer => Hop::Echo(Box::new(S::EchoLayer::new(&keys))),
            Role::Ordinary | Role::Coordinator => Hop::Relay(S::Layer::new(&keys.into())),
        };
        self.control(at, Command::CREATED_FAST, &answer);
        let now = self.outputs.now();
        let index = self.begin(Circuit::new(now, at, hop, Agreed::default()));
        if let Some(reason) = self.behavior.destroys_at_once(at) {
            self.destroy(index, reason, None);
        }
        Ok(())
    }

    /// Answers CREATE2.
    pub(crate) fn create2(&mut self, at: OnLink, body: &S::Body) {
        let Some(link) = self.conns.link(at.conn) else { return };
        if is_full(link) || !self.admits_circuit(at.conn) || !self.make_room_for_circuit(at.conn) {
            self.refuse(at, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        if self.config.handshakes_at_once == 0 {
            let answer = self.answer(body.bytes());
            self.create(at, answer);
            return;
        }
        let ip = self.conns.link(at.conn).and_then(Link::ip);
        let requester = ip.map_or(Requester::Link(at.conn), |ip| Requester::Place(Place::of(ip)));
        if let Some(loser) = self.handshakes.add(self.outputs.now(), requester, at, body) {
            self.refuse_handshake(loser);
        }
    }

    /// The next handshake to compute, on any thread. [`handle_handshake`](Self::handle_handshake) takes the
    /// result. At most [`RouterConfig::handshakes_at_once`](crate::router::RouterConfig::handshakes_at_once)
    /// are outstanding.
    #[must_use]
    pub fn poll_handshake(&mut self, now: Instant) -> Option<HandshakeJob<S>> {
        // The hot path: the driver polls after every event.
        if self.handshakes.len() == 0 {
            return None;
        }
        self.outputs.set_now(now);
        while self.handshakes.under_way() < self.config.handshakes_at_once {
            match self.handshakes.next(now)? {
                Next::TooLate(at) => self.refuse_handshake(at),
                Next::Answer(unanswered) => {
                    let mut ephemeral = [0; 32];
                    self.rng.fill_bytes(&mut ephemeral);
                    let identity = self.config.identity.clone();
                    return Some(unanswered.job(identity, self.offered(), ephemeral));
                }
            }
        }
        None
    }

    /// A handshake of [`poll_handshake`](Self::poll_handshake) has been computed.
    pub fn handle_handshake(&mut self, now: Instant, done: HandshakeDone<S>) {
        self.outputs.set_now(now);
        let Some((at, answer)) = self.handshakes.take(done) else { return };
        let Some(link) = self.conns.link(at.conn) else { return };
        // Other handshakes may have completed meanwhile.
        if is_full(link) || !self.make_room_for_circuit(at.conn) {
            self.refuse(at, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        self.create(at, answer);
    }

    /// It has been queued for too long.
    fn refuse_handshake(&mut self, at: OnLink) {
        self.totals.refused_handshakes += 1;
        self.refuse(at, DestroyReason::RESOURCE_LIMIT);
    }

    /// Creates the circuit of an answered handshake, or refuses it if there is no answer.
    fn create(&mut self, at: OnLink, answer: Option<HandshakeReply<S>>) {
        match answer {
            Some(HandshakeReply { data, keys, agreed }) => {
                let mut created = Vec::new();
                encode_created2_into(&data, &mut created);
                self.control(at, Command::CREATED2, &created);
                let (now, hop) = (self.outputs.now(), Hop::Relay(S::Layer::new(&keys)));
                self.begin(Circuit::new(now, at, hop, agreed));
            }
            None => self.refuse(at, DestroyReason::PROTOCOL),
        }
    }

    /// Whether the peer's address may create another circuit.
    fn admits_circuit(&mut self, conn: ConnId) -> bool {
        let Some(link) = self.conns.link(conn) else { return false };
        let Some(from) = link.from.filter(|_| link.is_counted) else { return true };
        let is_admitted =
            self.client_addresses.admit_circuit(self.outputs.now(), from, &mut self.rng);
        self.totals.refused_circuits += u64::from(!is_admitted);
        is_admitted
    }

    /// Computes the answer to a CREATE2, if it is valid.
    fn answer(&mut self, body: &[u8]) -> Option<HandshakeReply<S>> {
        let create = Create2::parse(body).ok()?;
        let offered = self.offered();
        let rng = &mut self.rng;
        S::answer(&self.config.identity, &create, offered, || {
            let mut ephemeral = [0; 32];
            rng.fill_bytes(&mut ephemeral);
            ephemeral
        })
    }

    /// The flow control that the relay grants if the client requests congestion control.
    fn offered(&self) -> Agreed {
        let params = &self.congestion;
        Agreed { congestion_sendme_cells: params.is_enabled.then_some(params.sendme_cells) }
    }

    /// Enters the circuit into the tables and returns its index.
    fn begin(&mut self, circuit: Circuit<S>) -> CircuitIndex {
        let at = circuit.back;
        let has_feedback = self.conns.link(at.conn).is_some_and(|link| link.has_feedback);
        let (is_measured, is_cgo) = match &circuit.hop {
            Hop::Echo(_) => (true, false),
            Hop::Relay(layer) => (false, layer.format() == RelayFormat::V1),
        };
        let index: CircuitIndex = self.circuits.add(circuit);
        // Measurement circuits have a window of their own.
        if has_feedback
            && !is_measured
            && let Some(circuit) = self.circuits.get_mut(index)
        {
            circuit.backward_queue.set_window(self.config.flows.hop());
            circuit.forward_queue.report_to_previous_hop();
        }
        if let Some(link) = self.conns.link_mut(at.conn) {
            link.circuits.add(at.circ_id, index, Direction::Forward);
        }
        self.totals.circuits += 1;
        self.totals.cgo_circuits += u64::from(is_cgo);
        self.measurement_circuits += usize::from(is_measured);
        if is_measured {
            self.fabricate_answers(index);
        }
        index
    }
}

#[cfg(test)]
mod tests;

/// Whether the link has reached its maximum number of circuits.
fn is_full(link: &Link) -> bool {
    let is_relays = link.dialled.is_some() || (link.from.is_some() && !link.is_counted);
    !is_relays && link.circuits.len() >= CIRCUITS_PER_LINK_MAX
}
