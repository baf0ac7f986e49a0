//! How circuits begin here, and how they end.

use super::circuit::{Circuit, Hop, Place};
use super::link::Role;
use super::{Conduct, Router};
use crate::cell::msg::{Create2, DestroyReason, HANDSHAKE_NTOR, encode_created2_into};
use crate::cell::{BODY_LEN, Command};
use crate::crypto::{HopKeys, Keystream, RelayHop, fast, ntor};
use crate::node::ConnId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;

/// Circuits on one link at a time; more are refused.
const CIRCUITS_PER_LINK_MAX: usize = 10_000;

/// Measurement circuits on one link.
const MEASUREMENT_CIRCUITS_PER_LINK_MAX: usize = 16;

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
            Role::Measurer => Hop::Echo(Keystream::new(&keys.key_forward)),
            Role::Ordinary | Role::Coordinator => Hop::Relay(Box::new(RelayHop::new(&keys))),
        };
        self.outputs.control(place.conn, place.circ_id, Command::CREATED_FAST, &answer);
        self.begin(place, hop);
        Ok(())
    }

    /// Answers CREATE2.
    pub(super) fn create2(&mut self, place: Place, body: &[u8; BODY_LEN]) {
        let Some(link) = self.links.get_mut(place.conn) else { return };
        if link.circuits.len() >= CIRCUITS_PER_LINK_MAX {
            self.refuse(place, DestroyReason::RESOURCE_LIMIT);
            return;
        }
        match self.answer_ntor(body) {
            Some((answer, keys)) => {
                let mut created = Vec::new();
                encode_created2_into(&answer, &mut created);
                self.outputs.control(place.conn, place.circ_id, Command::CREATED2, &created);
                self.begin(place, Hop::Relay(Box::new(RelayHop::new(&keys))));
            }
            None => self.refuse(place, DestroyReason::PROTOCOL),
        }
    }

    fn answer_ntor(&mut self, body: &[u8]) -> Option<([u8; ntor::SERVER_LEN], HopKeys)> {
        let create = Create2::parse(body).ok()?;
        if create.handshake_type != HANDSHAKE_NTOR {
            return None;
        }
        let mut ephemeral = [0; 32];
        self.rng.fill_bytes(&mut ephemeral);
        let identity = &self.config.identity;
        identity
            .onion_secrets()
            .find_map(|onion| ntor::respond(&identity.rsa.0, &onion, ephemeral, create.data).ok())
    }

    fn begin(&mut self, place: Place, hop: Hop) {
        let is_measured = matches!(hop, Hop::Echo(_));
        let number = self.circuits.add(Circuit::new(place, hop));
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
        let Some(link) = self.links.remove(id) else { return };
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
