//! How circuits get their next hop.

use super::Peer;
use super::behaviour::Behaviour;
use onion::cell::Command;
use onion::cell::msg::{DestroyReason, Extend2, link_specifier};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::link::ExpectedPeer;
use onion::node::{ConnId, Dial, Security};
use rand::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

impl<R: Rng> Peer<R> {
    /// Begins to extend a circuit: over the connection to that relay, or over a new one.
    pub(super) fn extend(&mut self, number: u32, data: &[u8]) -> Result<(), DestroyReason> {
        if matches!(self.behaviour, Behaviour::RefusesExtend) {
            return Err(DestroyReason::CONNECT_FAILED);
        }
        let extend = Extend2::parse(data).map_err(|_| DestroyReason::PROTOCOL)?;
        let (address, ids) = destination(&extend).ok_or(DestroyReason::PROTOCOL)?;
        if ids.rsa == self.identity.rsa {
            return Err(DestroyReason::PROTOCOL); // tor does not extend to itself, either
        }
        let circuit = self.circuits.get_mut(number).ok_or(DestroyReason::PROTOCOL)?;
        if circuit.forth_conn.is_some() {
            return Err(DestroyReason::PROTOCOL);
        }
        let id = match self.conns.to_relay(ids.rsa) {
            Some(id) => id,
            None => {
                let expected = ExpectedPeer { ids, address: address.ip() };
                let conn = self.conns.add(None, Some(expected));
                self.to_dial.push_back(Dial { conn, to: address, security: Security::Tls });
                conn
            }
        };
        circuit.forth_conn = Some(id);
        let mut create = Vec::new();
        extend.create.encode_into(&mut create);
        let conn = self.conns.get_mut(id).ok_or(DestroyReason::CONNECT_FAILED)?;
        if conn.expected.is_some_and(|expected| expected.ids != ids) {
            return Err(DestroyReason::OR_IDENTITY);
        }
        // The number of circuits bounds the number of those that wait.
        conn.waiting.push((number, create));
        if conn.channel.as_ref().is_some_and(onion::link::Channel::is_open) {
            self.create_waiting(id);
        }
        Ok(())
    }

    /// The link to the next hop is open: sends the CREATE2 cells that wait for it.
    pub(super) fn create_waiting(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        for (number, create) in std::mem::take(&mut conn.waiting) {
            let Some(conn) = self.conns.get_mut(id) else { return };
            // It may have been destroyed while it waited.
            if self.circuits.get_mut(number).is_none() {
                continue;
            }
            let circ_id = conn.next_circ_id();
            self.circuits.set_forth(number, (id, circ_id));
            if !self.conns.send(id, circ_id, Command::CREATE2, &create) {
                self.destroy(number, DestroyReason::RESOURCE_LIMIT);
            }
        }
    }
}

/// Address and identities of the relay that an EXTEND2 names.
fn destination(extend: &Extend2<'_>) -> Option<(SocketAddr, RelayIds)> {
    let (mut address, mut rsa, mut ed25519) = (None, None, None);
    for (specifier_type, content) in &extend.link_specifiers {
        match *specifier_type {
            link_specifier::IPV4 => {
                let [ip @ .., high, low]: [u8; 6] = (*content).try_into().ok()?;
                let port = u16::from_be_bytes([high, low]);
                address = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port));
            }
            link_specifier::IPV6 => {
                let [ip @ .., high, low]: [u8; 18] = (*content).try_into().ok()?;
                let port = u16::from_be_bytes([high, low]);
                let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port);
                address = address.or(Some(v6));
            }
            link_specifier::RSA_IDENTITY => rsa = Some(RsaId((*content).try_into().ok()?)),
            link_specifier::ED25519_IDENTITY => {
                ed25519 = Some(Ed25519Id((*content).try_into().ok()?));
            }
            _ => {}
        }
    }
    Some((address?, RelayIds { rsa: rsa?, ed25519 }))
}
