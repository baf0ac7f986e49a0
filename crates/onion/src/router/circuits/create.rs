//! How circuits begin here.

use super::{Circuit, CircuitIndex, Hop, OnLink, Way};
use crate::cell::Command;
use crate::cell::msg::{Create2, DestroyReason, encode_created2_into};
use crate::flow::control::Agreed;
use crate::node::ConnId;
use crate::router::links::{Link, Role};
use crate::router::{Conduct, Core};
use crate::suite::{Answer, Body, EchoLayer, Layer, Suite};
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;

/// Circuits on one link of a stranger at a time; more are refused. Behind a relay are many clients, and whoever comes by it
/// could shut it out from here: its circuits are bounded by memory alone.
const CIRCUITS_PER_LINK_MAX: usize = 10_000;

/// Measurement circuits on one link.
const MEASUREMENT_CIRCUITS_PER_LINK_MAX: usize = 16;

impl<S: Suite, R: Rng, C: Conduct<S>> Core<S, R, C> {
    /// Answers CREATE_FAST. An error is a violation of a measurement's rules.
    pub(in crate::router) fn create_fast(
        &mut self,
        at: OnLink,
        body: &S::Body,
    ) -> Result<(), &'static str> {
        let Some(link) = self.conns.link(at.conn) else { return Ok(()) };
        let (role, count, is_full) = (link.role, link.circuits.len(), is_full(link));
        if role == Role::Measurer && count >= MEASUREMENT_CIRCUITS_PER_LINK_MAX {
            return Err("too many measurement circuits on one link");
        }
        let is_measurers = role == Role::Measurer;
        if is_full
            || !self.has_room_for_circuits()
            || !(is_measurers || self.admits_circuit(at.conn))
        {
            self.refuse(at, DestroyReason::RESOURCE_LIMIT);
            return Ok(());
        }
        let mut y = [0; 20];
        self.rng.fill_bytes(&mut y);
        let (answer, keys) = S::answer_fast(body, y);
        let hop = match role {
            Role::Measurer => Hop::Echo(Box::new(S::EchoLayer::new(&keys))),
            Role::Ordinary | Role::Coordinator => Hop::Relay(S::Layer::new(&keys)),
        };
        self.control(at, Command::CREATED_FAST, &answer);
        self.begin(Circuit::new(at, hop, Agreed::default()));
        Ok(())
    }

    /// Answers CREATE2.
    pub(in crate::router) fn create2(&mut self, at: OnLink, body: &S::Body) {
        let Some(link) = self.conns.link(at.conn) else { return };
        if is_full(link) || !self.has_room_for_circuits() || !self.admits_circuit(at.conn) {
            self.refuse(at, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        match self.answer(body.bytes()) {
            Some(Answer { data, keys, agreed }) => {
                let mut created = Vec::new();
                encode_created2_into(&data, &mut created);
                self.control(at, Command::CREATED2, &created);
                self.begin(Circuit::new(at, Hop::Relay(S::Layer::new(&keys)), agreed));
            }
            None => self.refuse(at, DestroyReason::PROTOCOL),
        }
    }

    /// Whether the address at the other end may have another circuit.
    fn admits_circuit(&mut self, conn: ConnId) -> bool {
        let Some(link) = self.conns.link(conn) else { return false };
        let Some(from) = link.from.filter(|_| link.is_counted) else { return true };
        let is_admitted = self.neighbours.admit_circuit(self.outputs.now(), from, &mut self.rng);
        self.totals.refused_circuits += u64::from(!is_admitted);
        is_admitted
    }

    /// Answers the handshake in a CREATE2, if that is possible.
    fn answer(&mut self, body: &[u8]) -> Option<Answer<S>> {
        let create = Create2::parse(body).ok()?;
        let params = &self.congestion;
        let sendme_cells = params.is_enabled.then_some(params.sendme_cells);
        let offered = Agreed { congestion_sendme_cells: sendme_cells };
        let rng = &mut self.rng;
        S::answer(&self.config.identity, &create, offered, || {
            let mut ephemeral = [0; 32];
            rng.fill_bytes(&mut ephemeral);
            ephemeral
        })
    }

    fn begin(&mut self, circuit: Circuit<S>) {
        let at = circuit.back;
        let is_measured = matches!(circuit.hop, Hop::Echo(_));
        let index: CircuitIndex = self.circuits.add(circuit);
        if let Some(circuit) = self.circuits.get_mut(index) {
            circuit.back_queue.set_window(self.config.flows.hop());
        }
        if let Some(link) = self.conns.link_mut(at.conn) {
            link.circuits.add(at.circ_id, index, Way::Forth);
        }
        self.totals.circuits += 1;
        if is_measured {
            self.answer_ahead(index);
        }
    }
}

#[cfg(test)]
mod tests;

/// Whether a link may have no more circuits, however much memory there is.
fn is_full(link: &Link) -> bool {
    let is_relays = link.dialled.is_some() || (link.from.is_some() && !link.is_counted);
    !is_relays && link.circuits.len() >= CIRCUITS_PER_LINK_MAX
}
