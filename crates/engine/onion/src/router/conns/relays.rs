//! The choice of a link to a relay: canonical and old links are preferred.

use super::{Conns, Dials};
use crate::cell_model::CellModel;
use crate::identity::{RelayIds, RsaId};
use crate::node::ConnId;
use crate::router::links::{Link, LinkPeer};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The links to each relay.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// Links that this relay dialled, and links whose peer has authenticated. Oldest first.
    by_relay: BTreeMap<RsaId, Vec<ConnId>>,
    pub(crate) dials: Dials,
}

impl Relays {
    pub(super) fn add(&mut self, id: ConnId, link: &Link) {
        if let Some(dialled) = &link.dialled {
            self.by_relay.entry(dialled.ids.rsa).or_default().push(id);
        }
    }

    pub(super) fn remove(&mut self, id: ConnId, link: &Link) {
        self.dials.remove(id);
        let dialled = link.dialled.as_ref().map(|dialled| dialled.ids.rsa);
        if let Some(rsa) = dialled.or(link.peer().map(|ids| ids.rsa))
            && let Some(ids) = self.by_relay.get_mut(&rsa)
        {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.by_relay.remove(&rsa);
            }
        }
    }
}

impl<S: CellModel> Conns<S> {
    /// The link handshake is complete.
    pub(crate) fn handle_link_open(&mut self, id: ConnId, peer: &LinkPeer) {
        let Some(link) = self.link_mut(id) else { return };
        link.is_open = true;
        link.peer = peer.relay.map(Box::new);
        link.is_canonical = peer.is_canonical;
        link.padding.is_possible = peer.has_padding;
        link.has_feedback = peer.has_feedback;
        let is_accepted = link.dialled.is_none();
        self.relays.dials.remove(id);
        if let (true, Some(peer)) = (is_accepted, peer.relay) {
            self.relays.by_relay.entry(peer.rsa).or_default().push(id);
        }
    }

    /// Whether there is a link to this relay, open or being dialled, that this relay dialled.
    pub(crate) fn has_dialled(&self, relay: &RsaId) -> bool {
        let links = self.relays.by_relay.get(relay).into_iter().flatten();
        links.filter_map(|id| self.link(*id)).any(|link| link.dialled.is_some())
    }

    /// The link to use for extending circuits to a relay that is said to have these addresses, whichever side
    /// dialled it. Never one that is [too old](Link::is_old).
    ///
    /// Canonical links are preferred, and among them the oldest: nobody can attract circuits to a new link. A
    /// link that is being dialled is only used for the same address, so that a client that names a wrong
    /// address affects no one else.
    pub(crate) fn to_relay(
        &self,
        ids: &RelayIds,
        addresses: &[SocketAddr],
        now: Instant,
    ) -> Option<ConnId> {
        let with_relay = self.relays.by_relay.get(&ids.rsa)?.iter();
        let links = with_relay.filter_map(|id| Some((*id, self.link(*id)?)));
        let links = links.filter(|(_, link)| !link.is_old(now));
        let is_open = |link: &Link| link.is_open && link.leads_to(ids, addresses);
        let is_dialled = |link: &Link| {
            let dialled = link.dialled.as_ref().filter(|_| !link.is_open);
            dialled.is_some_and(|dialled| dialled.ids == *ids && addresses.contains(&dialled.to))
        };
        let find = |is_it: &dyn Fn(&Link) -> bool| {
            links.clone().find(|(_, link)| is_it(link)).map(|(id, _)| id)
        };
        find(&|link| is_open(link) && link.is_canonical)
            .or_else(|| find(&is_open))
            .or_else(|| find(&is_dialled))
    }
}
