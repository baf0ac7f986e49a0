use super::output::Output;
use super::padding::state::Padding;
use crate::cell::CircId;
use crate::identity::RelayIds;
use crate::link::ExpectedPeer;
use crate::router::circuits::{CircuitIndex, Direction};
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// C tor's `TIME_BEFORE_OR_CONN_IS_TOO_OLD`: a week.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) enum Role {
    /// Clients and relays.
    Ordinary,
    /// A coordinator that has ordered a measurement on it.
    Coordinator,
    /// A measurer that has proved itself.
    Measurer,
}

/// One link, accepted or dialled.
///
/// A relay has thousands of them, and of most nothing is in the processor's cache when something comes. So what each cell needs lies together, in the order in which it is declared.
#[derive(Debug)]
#[repr(C)]
pub(in crate::router) struct Link {
    /// Relay cells that have come by it, and cells that were sent: each of 514 bytes.
    pub(in crate::router) received_cells: u64,
    pub(in crate::router) sent_cells: u64,
    pub(in crate::router) circuits: CircuitIds,
    pub(in crate::router) padding: Padding,
    /// Each side says which cells it has passed on.
    pub(in crate::router) has_feedback: bool,
    /// The handshake is done.
    pub(in crate::router) is_open: bool,
    pub(in crate::router) role: Role,
    /// It counts among the links of the address where it comes from.
    pub(in crate::router) is_counted: bool,
    /// The relay says that its end has an address of its own.
    pub(in crate::router) is_canonical: bool,
    /// What waits to be written on it.
    pub(in crate::router) output: Output,
    /// Whom it leads to, if we dialled it.
    pub(in crate::router) expected: Option<ExpectedPeer>,
    /// Where we dialled it.
    pub(in crate::router) dialled: Option<SocketAddr>,
    /// Where it comes from, if we did not dial it.
    pub(in crate::router) from: Option<IpAddr>,
    /// The relay at the other end, once it has proved it. In a box to save memory: clients prove nothing,
    /// and most links are theirs.
    pub(in crate::router) peer: Option<Box<RelayIds>>,
    /// What its TLS session has exported for signatures of the protocol.
    pub(in crate::router) exported: Option<[u8; 32]>,
    /// Circuits that wait for the link to open, with their CREATE2 bodies.
    pub(in crate::router) waiting: BTreeMap<CircuitIndex, Box<[u8]>>,
    /// Circuits opened on it by us.
    opened: u32,
    /// When it began.
    began_at: Instant,
    /// When it began, or was last seen with something on it.
    pub(in crate::router) used_at: Instant,
    /// So long it stays open without circuits, once it is open.
    pub(in crate::router) idle_max: Duration,
    /// Cells that were under way on circuits which are gone: the other side may still say that it has passed them on.
    pub(in crate::router) stray_cells: u64,
}

impl Link {
    fn new(now: Instant, output: Output) -> Self {
        Self {
            is_open: false,
            role: Role::Ordinary,
            expected: None,
            dialled: None,
            is_counted: false,
            from: None,
            peer: None,
            is_canonical: false,
            exported: None,
            circuits: CircuitIds::default(),
            waiting: BTreeMap::new(),
            opened: 0,
            began_at: now,
            used_at: now,
            idle_max: Duration::ZERO,
            padding: Padding::new(now),
            has_feedback: false,
            stray_cells: 0,
            received_cells: 0,
            sent_cells: 0,
            output,
        }
    }

    /// One that came from there, and whose TLS session has exported this.
    pub(in crate::router) fn accepted(
        now: Instant,
        output: Output,
        from: Option<IpAddr>,
        exported: Option<[u8; 32]>,
    ) -> Self {
        Self { from, exported, ..Self::new(now, output) }
    }

    /// One that we dial.
    pub(in crate::router) fn dialled(
        now: Instant,
        output: Output,
        to: SocketAddr,
        ids: RelayIds,
    ) -> Self {
        let expected = Some(ExpectedPeer { ids, address: to.ip() });
        Self { expected, dialled: Some(to), ..Self::new(now, output) }
    }

    /// Whether it has stood so long that no circuits are extended over it any more: what its keys protect does not
    /// grow for ever. As in C tor, it is closed when those that it carries are over.
    pub(in crate::router) fn is_old(&self, now: Instant) -> bool {
        now - self.began_at >= AGE_MAX
    }

    /// A circuit ID of our choice that is free.
    pub(in crate::router) fn next_circ_id(&mut self) -> CircId {
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
    pub(in crate::router) const fn is_our_choice(&self, circ_id: CircId) -> bool {
        circ_id.is_of_initiator() == self.expected.is_some()
    }

    /// We dialled it, or the other side has proved to be a relay.
    pub(in crate::router) const fn is_relays(&self) -> bool {
        self.expected.is_some() || self.peer.is_some()
    }

    /// We dial it, and nobody has answered yet.
    pub(in crate::router) const fn is_dial(&self) -> bool {
        self.expected.is_some() && !self.is_open
    }

    /// The relay at the other end, once it has proved it.
    pub(in crate::router) fn peer(&self) -> Option<&RelayIds> {
        self.peer.as_deref()
    }

    /// Where the other end is.
    pub(in crate::router) fn ip(&self) -> Option<IpAddr> {
        self.dialled.map(|dialled| dialled.ip()).or(self.from)
    }

    /// Whether circuits may be extended over it to a relay that is said to be at these addresses.
    ///
    /// As in C tor: where the relay says that its end has an address of its own, or where that address is
    /// the one that is asked for. Whoever names a wrong address, and sits there to pass everything on,
    /// would otherwise see all that anybody sends to that relay through us.
    pub(in crate::router) fn leads_to(&self, ids: &RelayIds, addresses: &[SocketAddr]) -> bool {
        let Some(peer) = self.peer() else { return false };
        let is_asked_for = || addresses.iter().any(|address| Some(address.ip()) == self.ip());
        self.role == Role::Ordinary
            && peer.rsa == ids.rsa
            && ids.ed25519.is_none_or(|ed25519| peer.ed25519 == Some(ed25519))
            && (self.is_canonical || is_asked_for())
    }
}

/// The circuits on one link, by their IDs on it.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::router) struct CircuitIds {
    /// Where the last cell belonged: the next one most likely does, too.
    last: Option<(CircId, (CircuitIndex, Direction))>,
    entries: BTreeMap<CircId, (CircuitIndex, Direction)>,
}

impl CircuitIds {
    /// The circuit with this ID, and the way of cells that come from this link.
    #[inline]
    pub(in crate::router) fn find(&mut self, circ_id: CircId) -> Option<(CircuitIndex, Direction)> {
        if let Some((known, found)) = self.last
            && known == circ_id
        {
            return Some(found);
        }
        let found = self.entries.get(&circ_id).copied()?;
        self.last = Some((circ_id, found));
        Some(found)
    }

    /// Whether there is one with this ID.
    pub(in crate::router) fn contains(&self, circ_id: CircId) -> bool {
        self.entries.contains_key(&circ_id)
    }

    pub(in crate::router) fn add(
        &mut self,
        circ_id: CircId,
        index: CircuitIndex,
        direction: Direction,
    ) {
        self.entries.insert(circ_id, (index, direction));
    }

    pub(in crate::router) fn remove(&mut self, circ_id: CircId) {
        self.entries.remove(&circ_id);
        self.last = None;
    }

    pub(in crate::router) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those that the other end has begun.
    pub(in crate::router) fn begun_there(&self) -> impl Iterator<Item = CircuitIndex> {
        let theirs =
            self.entries.values().filter(|(_, direction)| *direction == Direction::Forward);
        theirs.map(|(index, _)| *index)
    }

    pub(in crate::router) fn indices(&self) -> Vec<CircuitIndex> {
        self.entries.values().map(|(index, _)| *index).collect()
    }
}
