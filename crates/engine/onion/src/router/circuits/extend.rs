//! Circuit extension.

use super::{CircuitIndex, Direction, Hop, NextLink, OnLink};
use crate::cell::Command;
use crate::cell::msg::{
    DestroyReason, Extend2, encode_created2_into, link_specifier, parse_created2,
};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, StreamId};
use crate::identity::{Ed25519Id, RelayIds, RsaId};
use crate::node::{ConnId, Dial, Security};
use crate::router::links::Link;
use crate::router::streams::is_private;
use crate::router::{Behavior, Core};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use rand_core::Rng;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Extends a circuit over the existing link to that relay, or over a new one.
    pub(crate) fn extend(&mut self, index: CircuitIndex, data: &[u8]) -> Result<(), DestroyReason> {
        if let Some(reason) = self.behavior.refuses_to_extend() {
            return Err(reason);
        }
        let extend = Extend2::parse(data).map_err(|_| DestroyReason::PROTOCOL)?;
        let (mut addresses, ids) = destination(&extend).ok_or(DestroyReason::PROTOCOL)?;
        // Not a public address: unroutable, or inside the operator's own network.
        let allows_private = self.config.extends_to_private;
        addresses.retain(|address| {
            is_routable(*address) && (allows_private || !is_private(address.ip()))
        });
        let address = *addresses.first().ok_or(DestroyReason::PROTOCOL)?;
        let circuit = self.circuits.get(index).ok_or(DestroyReason::PROTOCOL)?;
        let is_linked = circuit.end.as_ref().is_some_and(|end| end.is_linked);
        if circuit.next_link != NextLink::None || matches!(circuit.hop, Hop::Echo(_)) || is_linked {
            return Err(DestroyReason::PROTOCOL);
        }
        // No honest client extends a circuit back to the previous hop. Loops would multiply the client's
        // traffic.
        let previous = self.conns.link(circuit.back.conn).and_then(Link::peer);
        if previous.is_some_and(|previous| is_same(previous, &ids)) {
            return Err(DestroyReason::PROTOCOL);
        }
        if is_same(&S::ids(&self.config.identity), &ids) {
            return Err(DestroyReason::CONNECT_FAILED); // as C tor, which fails to dial itself
        }
        let asked_by = self.conns.link(circuit.back.conn).and_then(Link::ip);
        let id = match self.conns.to_relay(&ids, &addresses, self.outputs.now()) {
            Some(id) => id,
            None => self.dial_relay(address, ids, asked_by),
        };
        let mut create = Vec::new();
        extend.create.encode_into(&mut create);
        let link = self.conns.link_mut(id).ok_or(DestroyReason::CONNECT_FAILED)?;
        // The limit on circuits bounds the number of waiting ones.
        self.waiting += 1;
        link.waiting.insert(index, create.into());
        let is_open = link.is_open;
        if let Some(circuit) = self.circuits.get_mut(index) {
            circuit.next_link = NextLink::Dialing(id);
        }
        if is_open {
            self.create_waiting(id);
        }
        Ok(())
    }

    fn dial_relay(&mut self, to: SocketAddr, ids: RelayIds, asked_by: Option<IpAddr>) -> ConnId {
        let is_listed = self.config.relays.contain(to);
        while let Some(victim) = self.conns.relays.dials.victim(asked_by, is_listed) {
            self.reject(victim);
        }
        let link = Link::dialled(self.outputs.now(), self.outputs.begin(), to, ids);
        let conn = self.conns.add_link(link);
        self.conns.relays.dials.add(conn, asked_by, is_listed);
        self.to_dial.push_back(Dial { conn, to, security: Security::Tls });
        conn
    }

    /// The link to the next hop is open: sends the queued CREATE2 cells.
    pub(crate) fn create_waiting(&mut self, id: ConnId) {
        let Some(link) = self.conns.link_mut(id) else { return };
        for (index, create) in core::mem::take(&mut link.waiting) {
            self.waiting -= 1;
            let Some(link) = self.conns.link_mut(id) else { return };
            // The circuit may have been destroyed meanwhile, and its index reused.
            let Some(circuit) = self.circuits.get_mut(index) else { continue };
            if circuit.next_link != NextLink::Dialing(id) {
                continue;
            }
            let at = OnLink { conn: id, circ_id: link.next_circ_id() };
            circuit.next_link = NextLink::Extending(at);
            link.circuits.add(at.circ_id, index, Direction::Backward);
            if !self.control(at, Command::CREATE2, &create) {
                self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
            }
        }
    }

    /// The next hop has sent CREATED2: the circuit is extended.
    pub(crate) fn handle_created(&mut self, index: CircuitIndex, from: OnLink, body: &[u8]) {
        let has_feedback = self.conns.link(from.conn).is_some_and(|link| link.has_feedback);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        match parse_created2(body) {
            Ok(answer) if circuit.next_link == NextLink::Extending(from) => {
                circuit.next_link = NextLink::Open(from);
                if has_feedback {
                    circuit.forward_queue.set_window(self.config.flows.hop());
                    circuit.backward_queue.report_to_previous_hop();
                }
                let mut data = Vec::new();
                encode_created2_into(answer, &mut data);
                self.originate(index, RelayCommand::EXTENDED2, StreamId::CIRCUIT, &data);
            }
            _ => self.destroy(index, DestroyReason::PROTOCOL, None),
        }
    }
}

/// Whether two relays share an identity.
fn is_same(one: &RelayIds, other: &RelayIds) -> bool {
    one.rsa == other.rsa || one.ed25519.is_some() && one.ed25519 == other.ed25519
}

/// Whether a relay may have this address.
fn is_routable(address: SocketAddr) -> bool {
    let is_one = match address.ip().to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    is_one && address.port() > 0
}

/// The addresses and identities in an EXTEND2 message, IPv4 first.
fn destination(extend: &Extend2<'_>) -> Option<(Vec<SocketAddr>, RelayIds)> {
    let (mut v4, mut v6, mut rsa, mut ed25519) = (None, None, None, None);
    for (specifier_type, content) in &extend.link_specifiers {
        match *specifier_type {
            link_specifier::IPV4 => {
                let [ip @ .., high, low]: [u8; 6] = (*content).try_into().ok()?;
                let port = u16::from_be_bytes([high, low]);
                v4 = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port));
            }
            link_specifier::IPV6 => {
                let [ip @ .., high, low]: [u8; 18] = (*content).try_into().ok()?;
                let port = u16::from_be_bytes([high, low]);
                v6 = Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port));
            }
            link_specifier::RSA_IDENTITY => rsa = Some(RsaId((*content).try_into().ok()?)),
            link_specifier::ED25519_IDENTITY => {
                ed25519 = Some(Ed25519Id((*content).try_into().ok()?));
            }
            _ => {}
        }
    }
    // All zeros would match any relay.
    let rsa = rsa.filter(|rsa| rsa.0 != [0; 20])?;
    Some((v4.into_iter().chain(v6).collect(), RelayIds { rsa, ed25519 }))
}

#[cfg(test)]
mod tests;
