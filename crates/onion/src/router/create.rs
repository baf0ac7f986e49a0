//! How circuits begin here, and how they end.

use super::circuit::{Circuit, Hop, Place};
use super::link::Role;
use super::{Conduct, Router};
use crate::cell::msg::{
    Create2, DestroyReason, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3, encode_created2_into,
};
use crate::cell::{BODY_LEN, Command};
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::crypto::{HopKeys, Keystream, RelayHop, fast, ntor, ntor_v3};
use crate::flow::control::{Flow, PathKind, Vegas};
use crate::node::ConnId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rand_core::Rng;

/// Circuits on one link at a time; more are refused.
const CIRCUITS_PER_LINK_MAX: usize = 10_000;

/// Measurement circuits on one link.
const MEASUREMENT_CIRCUITS_PER_LINK_MAX: usize = 16;

/// Our half of a circuit's handshake.
struct Answer {
    /// For the CREATED2.
    data: Vec<u8>,
    keys: HopKeys,
    flow: Flow,
}

impl<R: Rng, C: Conduct> Router<R, C> {
    /// Answers CREATE_FAST. An error is a violation of a measurement's rules.
    pub(super) fn create_fast(
        &mut self,
        place: Place,
        body: &[u8; BODY_LEN],
    ) -> Result<(), &'static str> {
        let Some(link) = self.links.get_mut(place.conn) else { return Ok(()) };
        let (role, count) = (link.role, link.circuits.len());
        if role == Role::Measurer && count >= MEASUREMENT_CIRCUITS_PER_LINK_MAX {
            return Err("too many measurement circuits on one link");
        }
        if count >= CIRCUITS_PER_LINK_MAX {
            self.refuse(place, DestroyReason::RESOURCE_LIMIT);
            return Ok(());
        }
        let (mut x, mut y) = ([0; 20], [0; 20]);
        x.copy_from_slice(&body[..20]);
        self.rng.fill_bytes(&mut y);
        let (created, keys) = fast::respond(&x, y);
        let mut answer = Vec::new();
        created.encode_into(&mut answer);
        let hop = match role {
            Role::Measurer => Hop::Echo(Box::new(Keystream::new(&keys.key_forward))),
            Role::Ordinary | Role::Coordinator => Hop::Relay(RelayHop::new(&keys)),
        };
        self.outputs.control(place.conn, place.circ_id, Command::CREATED_FAST, &answer);
        self.begin(Circuit::new(place, hop));
        Ok(())
    }

    /// Answers CREATE2.
    pub(super) fn create2(&mut self, place: Place, body: &[u8; BODY_LEN]) {
        let Some(link) = self.links.get_mut(place.conn) else { return };
        if link.circuits.len() >= CIRCUITS_PER_LINK_MAX {
            self.refuse(place, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        match self.answer(body) {
            Some(Answer { data, keys, flow }) => {
                let mut created = Vec::new();
                encode_created2_into(&data, &mut created);
                self.outputs.control(place.conn, place.circ_id, Command::CREATED2, &created);
                let hop = Hop::Relay(RelayHop::new(&keys));
                self.begin(Circuit { flow, ..Circuit::new(place, hop) });
            }
            None => self.refuse(place, DestroyReason::PROTOCOL),
        }
    }

    /// Answers the handshake in a CREATE2, if that is possible.
    fn answer(&mut self, body: &[u8]) -> Option<Answer> {
        let create = Create2::parse(body).ok()?;
        match create.handshake_type {
            HANDSHAKE_NTOR => self.answer_ntor(create.data),
            HANDSHAKE_NTOR_V3 => self.answer_ntor_v3(create.data),
            _ => None,
        }
    }

    fn answer_ntor(&mut self, data: &[u8]) -> Option<Answer> {
        let mut ephemeral = [0; 32];
        self.rng.fill_bytes(&mut ephemeral);
        let identity = &self.config.identity;
        let (answer, keys) = identity
            .onion_secrets()
            .find_map(|onion| ntor::respond(&identity.rsa.0, &onion, ephemeral, data).ok())?;
        Some(Answer { data: Vec::from(answer), keys, flow: Flow::default() })
    }

    /// Stock clients take version 3 for exits that announce `FlowCtrl=2` and `Relay=4`, and ask for
    /// congestion control.
    fn answer_ntor_v3(&mut self, data: &[u8]) -> Option<Answer> {
        let identity = &self.config.identity;
        let handshake = identity
            .onion_secrets()
            .find_map(|onion| ntor_v3::Server::open(&identity.ed25519.0, &onion, data).ok())?;
        let request = Request::parse(handshake.message()).ok()?;
        if request.wants_protocols {
            return None;
        }
        let params = &self.congestion;
        let agreed =
            (request.wants_congestion_control && params.is_enabled).then_some(params.sendme_cells);
        let mut ephemeral = [0; 32];
        self.rng.fill_bytes(&mut ephemeral);
        let response = Response { congestion_sendme_cells: agreed };
        let (data, keys) = handshake.respond(ephemeral, &response.encode()).ok()?;
        let flow = agreed.map_or_else(Flow::default, |sendme_cells| {
            let vegas = Vegas::new(Arc::clone(params), PathKind::Exit, sendme_cells);
            Flow::Vegas(Box::new(vegas))
        });
        Some(Answer { data, keys, flow })
    }

    fn begin(&mut self, circuit: Circuit) {
        let place = circuit.back;
        let is_measured = matches!(circuit.hop, Hop::Echo(_));
        let number = self.circuits.add(circuit);
        if let Some(link) = self.links.get_mut(place.conn) {
            link.circuits.add(place.circ_id, number, super::circuit::Way::Forth);
        }
        self.totals.circuits += 1;
        if is_measured {
            self.answer_ahead(number);
        }
    }

    /// Refuses a circuit that has not begun, or whose ID is not known.
    pub(super) fn refuse(&mut self, place: Place, reason: DestroyReason) {
        self.outputs.control(place.conn, place.circ_id, Command::DESTROY, &[reason.get()]);
    }

    /// Ends a circuit, and tells both sides but the one that knows, and those whose link is gone.
    pub(super) fn destroy(&mut self, number: u32, reason: DestroyReason, but: Option<Place>) {
        self.forget_waiting(number);
        let Some(circuit) = self.circuits.remove(number) else { return };
        if let Some(edge) = &circuit.edge {
            self.end_streams(edge);
        }
        let ends = [
            Some((circuit.back, circuit.back_queue.len())),
            circuit.forth().map(|forth| (forth, circuit.forth_queue.len())),
        ];
        for (place, cells) in ends.into_iter().flatten() {
            self.outputs.handle_dropped(place.conn, cells);
            let Some(link) = self.links.get_mut(place.conn) else { continue };
            link.circuits.remove(place.circ_id);
            if but != Some(place) {
                self.refuse(place, reason);
            }
        }
    }

    /// A circuit does not wait for a link any more: its number may be used again.
    pub(super) fn forget_waiting(&mut self, number: u32) {
        let Some(circuit) = self.circuits.get_mut(number) else { return };
        if let (Some(conn), None) = (circuit.forth_conn, circuit.forth_id)
            && let Some(link) = self.links.get_mut(conn)
        {
            link.waiting.retain(|(waiting, _)| *waiting != number);
        }
    }

    /// A link is gone: so are its circuits, and its part in a measurement.
    pub(super) fn lose(&mut self, id: ConnId, reason: DestroyReason) {
        let Some(mut link) = self.links.remove(id) else { return };
        self.padder.forget(id, &mut link.padding);
        let waiting = link.waiting.iter().map(|(number, _)| *number);
        for number in link.circuits.numbers().into_iter().chain(waiting) {
            let uses_it = self
                .circuits
                .get_mut(number)
                .is_some_and(|circuit| circuit.back.conn == id || circuit.forth_conn == Some(id));
            if uses_it {
                self.destroy(number, reason, None);
            }
        }
        self.target.handle_closed(id);
    }
}

#[cfg(test)]
mod tests;
