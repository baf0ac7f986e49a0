use super::circuit::Way;
use super::padding::Padding;
use crate::cell::CircId;
use crate::identity::{RelayIds, RsaId};
use crate::link::{Channel, ExpectedPeer};
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Clients and relays.
    Ordinary,
    /// A coordinator that has ordered a measurement on it.
    Coordinator,
    /// A measurer that has proved itself.
    Measurer,
}

/// One link, accepted or dialled.
#[derive(Debug)]
pub(super) struct Link {
    /// None until TLS stands, and while its cells are handled.
    pub(super) channel: Option<Channel>,
    /// The handshake is done.
    pub(super) is_open: bool,
    pub(super) role: Role,
    /// Whom it leads to, if we dialled it.
    pub(super) expected: Option<ExpectedPeer>,
    /// Where we dialled it.
    pub(super) dialled: Option<SocketAddr>,
    /// What its TLS session has exported for signatures of the protocol.
    pub(super) exported: Option<[u8; 32]>,
    pub(super) circuits: CircuitTable,
    /// Circuits that wait for the link to open, with their CREATE2 bodies.
    pub(super) waiting: Vec<(u32, Vec<u8>)>,
    /// Circuits opened on it by us.
    pub(super) opened: u32,
    /// When it began, or was last seen with something on it.
    pub(super) used_at: Instant,
    /// So long it stays open without circuits, once it is open.
    pub(super) idle_max: Duration,
    /// We dialled it, or the other side presents itself as a relay.
    pub(super) is_relays: bool,
    pub(super) padding: Padding,
}

impl Link {
    pub(super) fn new(
        now: Instant,
        channel: Option<Channel>,
        expected: Option<ExpectedPeer>,
    ) -> Self {
        Self {
            channel,
            is_open: false,
            role: Role::Ordinary,
            expected,
            dialled: None,
            exported: None,
            circuits: CircuitTable::default(),
            waiting: Vec::new(),
            opened: 0,
            used_at: now,
            idle_max: Duration::ZERO,
            is_relays: expected.is_some(),
            padding: Padding::new(now),
        }
    }

    /// A circuit ID of our choice that is free.
    pub(super) fn next_circ_id(&mut self) -> CircId {
        loop {
            self.opened = self.opened.wrapping_add(1);
            let circ_id = CircId::of_initiator(self.opened);
            if self.circuits.find(circ_id).is_none() {
                return circ_id;
            }
        }
    }
}

/// The circuits on one link, by their IDs on it.
#[derive(Debug, Default)]
pub(super) struct CircuitTable {
    entries: BTreeMap<CircId, (u32, Way)>,
    /// Where the last cell belonged: the next one most likely does, too.
    last: Option<(CircId, (u32, Way))>,
}

impl CircuitTable {
    /// The circuit with this ID, and the way of cells that come from this link.
    #[inline]
    pub(super) fn find(&mut self, circ_id: CircId) -> Option<(u32, Way)> {
        if let Some((known, found)) = self.last
            && known == circ_id
        {
            return Some(found);
        }
        let found = self.entries.get(&circ_id).copied()?;
        self.last = Some((circ_id, found));
        Some(found)
    }

    pub(super) fn add(&mut self, circ_id: CircId, number: u32, way: Way) {
        self.entries.insert(circ_id, (number, way));
    }

    pub(super) fn remove(&mut self, circ_id: CircId) {
        self.entries.remove(&circ_id);
        self.last = None;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.entries.values().map(|(number, _)| *number).collect()
    }
}

/// All links by number; the number of one that is closed is used again.
///
/// Streams have numbers from here as well.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<Option<Link>>,
    count: usize,
    free: Vec<ConnId>,
    /// Links that we dialled, by whom they lead to: one to each relay, and others that were asked for
    /// at other addresses before it was open.
    dialled: BTreeMap<RsaId, Vec<ConnId>>,
}

impl Links {
    /// A number that nobody has; [`release`](Self::release) gives it back.
    pub(super) fn reserve(&mut self) -> ConnId {
        self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            ConnId(u32::try_from(self.links.len() - 1).unwrap_or(u32::MAX))
        })
    }

    pub(super) fn add(&mut self, link: Link) -> ConnId {
        let id = self.reserve();
        self.count += 1;
        if let Some(expected) = &link.expected {
            self.dialled.entry(expected.ids.rsa).or_default().push(id);
        }
        self.links[id.0 as usize] = Some(link);
        id
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Link)> {
        let links = (0..).zip(&mut self.links);
        links.filter_map(|(number, link)| Some((ConnId(number), link.as_mut()?)))
    }

    /// Those that we dial and that are not open yet.
    pub(super) fn dials(&self) -> usize {
        let dialled = self.dialled.values().flatten();
        let links = dialled.filter_map(|id| self.links.get(id.0 as usize)?.as_ref());
        links.filter(|link| !link.is_open).count()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Link> {
        self.links.get_mut(id.0 as usize)?.as_mut()
    }

    /// The link is no more; its number is not free yet.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Link> {
        let link = self.links.get_mut(id.0 as usize)?.take()?;
        self.count -= 1;
        if let Some(expected) = &link.expected
            && let Some(ids) = self.dialled.get_mut(&expected.ids.rsa)
        {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.dialled.remove(&expected.ids.rsa);
            }
        }
        Some(link)
    }

    /// Nobody names the connection any more.
    pub(super) fn release(&mut self, id: ConnId) {
        self.free.push(id);
    }

    /// The link that we dialled to a relay.
    ///
    /// One that is not open yet serves those who want the same address only: whoever names a wrong
    /// one keeps nobody else from the relay.
    pub(super) fn to_relay(&self, ids: &RelayIds, address: SocketAddr) -> Option<ConnId> {
        let link = |id: &ConnId| self.links.get(id.0 as usize).and_then(Option::as_ref);
        let is_theirs = |link: &Link| link.expected.is_some_and(|expected| expected.ids == *ids);
        let known = self.dialled.get(&ids.rsa)?;
        let find = |is_it: &dyn Fn(&Link) -> bool| {
            known.iter().find(|id| link(id).is_some_and(|it| is_theirs(it) && is_it(it))).copied()
        };
        find(&|link| link.is_open).or_else(|| find(&|link| link.dialled == Some(address)))
    }
}
