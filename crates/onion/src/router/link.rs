use super::circuit::Way;
use super::padding::Padding;
use crate::cell::CircId;
use crate::identity::{RelayIds, RsaId};
use crate::link::{Channel, ExpectedPeer};
use crate::node::ConnId;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

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
    /// Where it comes from, if we did not dial it.
    pub(super) from: Option<IpAddr>,
    /// The relay at the other end, once it has proved it. Not at hand: clients prove nothing, and there
    /// are many.
    pub(super) peer: Option<Box<RelayIds>>,
    /// The relay says that its end has an address of its own.
    pub(super) is_canonical: bool,
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
            from: None,
            peer: None,
            is_canonical: false,
            exported: None,
            circuits: CircuitTable::default(),
            waiting: Vec::new(),
            opened: 0,
            used_at: now,
            idle_max: Duration::ZERO,
            padding: Padding::new(now),
        }
    }

    /// A circuit ID of our choice that is free.
    pub(super) fn next_circ_id(&mut self) -> CircId {
        loop {
            self.opened = self.opened.wrapping_add(1);
            let circ_id = match self.expected {
                Some(_) => CircId::of_initiator(self.opened),
                None => CircId::of_responder(self.opened),
            };
            if circ_id != CircId::LINK && self.circuits.find(circ_id).is_none() {
                return circ_id;
            }
        }
    }

    /// Whether an ID is of the half that is ours to choose from (tor-spec §5.1.1).
    pub(super) const fn is_our_choice(&self, circ_id: CircId) -> bool {
        circ_id.is_of_initiator() == self.expected.is_some()
    }

    /// We dialled it, or the other side has proved to be a relay.
    pub(super) const fn is_relays(&self) -> bool {
        self.expected.is_some() || self.peer.is_some()
    }

    /// We dial it, and nobody has answered yet.
    const fn is_dial(&self) -> bool {
        self.expected.is_some() && self.peer.is_none()
    }

    /// The relay at the other end, once it has proved it.
    pub(super) fn peer(&self) -> Option<&RelayIds> {
        self.peer.as_deref()
    }

    /// Whether circuits may be extended over it to a relay that is said to be at these addresses.
    ///
    /// As in C tor: where the relay says that its end has an address of its own, or where that address is
    /// the one that is asked for. Whoever names a wrong address, and sits there to pass everything on,
    /// would otherwise see all that anybody sends to that relay through us.
    fn leads_to(&self, ids: &RelayIds, addresses: &[SocketAddr]) -> bool {
        let Some(peer) = self.peer() else { return false };
        let ip = self.dialled.map(|dialled| dialled.ip()).or(self.from);
        let is_asked_for = || addresses.iter().any(|address| Some(address.ip()) == ip);
        self.role == Role::Ordinary
            && peer.rsa == ids.rsa
            && ids.ed25519.is_none_or(|ed25519| peer.ed25519 == Some(ed25519))
            && (self.is_canonical || is_asked_for())
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
    /// Links with relays, by whom they lead to: those that we dialled, and those whose other end has
    /// proved who it is. The older ones first.
    by_relay: BTreeMap<RsaId, Vec<ConnId>>,
    /// Those that we dial and that are not open yet.
    dials: usize,
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
            self.by_relay.entry(expected.ids.rsa).or_default().push(id);
            self.dials += 1;
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
    pub(super) const fn dials(&self) -> usize {
        self.dials
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Link> {
        self.links.get_mut(id.0 as usize)?.as_mut()
    }

    /// The link is no more; its number is not free yet.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Link> {
        let link = self.links.get_mut(id.0 as usize)?.take()?;
        self.count -= 1;
        self.dials -= usize::from(link.is_dial());
        let rsa = link.expected.map(|expected| expected.ids.rsa).or(link.peer().map(|ids| ids.rsa));
        if let Some(rsa) = rsa
            && let Some(ids) = self.by_relay.get_mut(&rsa)
        {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.by_relay.remove(&rsa);
            }
        }
        Some(link)
    }

    /// Nobody names the connection any more.
    pub(super) fn release(&mut self, id: ConnId) {
        self.free.push(id);
    }

    /// The handshake of a link has brought this.
    pub(super) fn handle_opened(&mut self, id: ConnId, channel: &Channel) {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        self.dials -= usize::from(link.is_dial());
        link.peer = channel.peer().map(|peer| Box::new(peer.ids));
        link.is_canonical = channel.is_canonical();
        if let (None, Some(peer)) = (link.expected, &link.peer) {
            self.by_relay.entry(peer.rsa).or_default().push(id);
        }
    }

    /// The link over which circuits are extended to a relay that is said to be at these addresses,
    /// whoever dialled it.
    ///
    /// Of several, one whose relay says that the address is its own, and of these the oldest: nobody
    /// draws circuits over to a new one. One that we dial serves those who want the same address only:
    /// whoever names a wrong one keeps nobody else from the relay.
    pub(super) fn to_relay(&self, ids: &RelayIds, addresses: &[SocketAddr]) -> Option<ConnId> {
        let with_relay = self.by_relay.get(&ids.rsa)?.iter();
        let links =
            with_relay.filter_map(|id| Some((*id, self.links.get(id.0 as usize)?.as_ref()?)));
        let is_open = |link: &Link| link.is_open && link.leads_to(ids, addresses);
        let is_dialled = |link: &Link| {
            let is_there = || link.dialled.is_some_and(|dialled| addresses.contains(&dialled));
            !link.is_open && link.expected.is_some_and(|it| it.ids == *ids) && is_there()
        };
        let find = |is_it: &dyn Fn(&Link) -> bool| {
            links.clone().find(|(_, link)| is_it(link)).map(|(id, _)| id)
        };
        find(&|link| is_open(link) && link.is_canonical)
            .or_else(|| find(&is_open))
            .or_else(|| find(&is_dialled))
    }
}
