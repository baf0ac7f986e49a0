//! One link: its peer, its role and its circuits.

use super::output::Output;
use super::padding::state::Padding;
use super::reading::ReadTurn;
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

/// The role of a link's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Clients and relays.
    Ordinary,
    /// A coordinator whose order was accepted on it.
    Coordinator,
    /// A measurer that has authenticated.
    Measurer,
}

/// The relay that a link was dialled to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialled {
    /// The identities that it must prove.
    pub(crate) ids: RelayIds,
    /// The address.
    pub(crate) to: SocketAddr,
}

/// One link, accepted or dialled.
///
/// A relay has thousands of links, most of which are not in the processor's cache when a cell arrives. The
/// fields that each cell needs are adjacent, so the order of declaration matters.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Link {
    /// Relay cells received and cells sent, of 514 bytes each.
    pub(crate) received_cells: u64,
    pub(crate) sent_cells: u64,
    pub(crate) circuits: CircuitIds,
    pub(crate) padding: Padding,
    /// Whether both sides report forwarded cells.
    pub(crate) has_feedback: bool,
    /// Whether the handshake is complete.
    pub(crate) is_open: bool,
    pub(crate) role: Role,
    /// Whether it counts among the links of its address.
    pub(crate) is_counted: bool,
    /// Whether the peer claims its end's address as its own.
    pub(crate) is_canonical: bool,
    /// Queued output.
    pub(crate) output: Output,
    /// The relay that this relay dialled; `None` if the peer dialled. Boxed to save memory: most links are those
    /// of clients.
    pub(crate) dialled: Option<Box<Dialled>>,
    /// The peer's address, if the peer dialled.
    pub(crate) from: Option<IpAddr>,
    /// The authenticated peer. Boxed as well: clients do not authenticate.
    pub(crate) peer: Option<Box<RelayIds>>,
    /// Keying material of its TLS session, for signatures of the measurement protocol.
    pub(crate) exported: Option<[u8; 32]>,
    /// Circuits that wait for the link to open, with their CREATE2 bodies.
    pub(crate) waiting: BTreeMap<CircuitIndex, Box<[u8]>>,
    /// Circuits created by this relay on it.
    opened: u32,
    /// When it was created.
    began_at: Instant,
    /// When it was created, or was last seen in use.
    pub(crate) used_at: Instant,
    /// How long it stays open without circuits.
    pub(crate) idle_max: Duration,
    /// Cells in flight on closed circuits, which the peer may still report as forwarded.
    pub(crate) stray_cells: u64,
    pub(crate) read_turn: ReadTurn,
    /// Cells received since the last upkeep that are padding.
    pub(crate) padding_cells: u32,
}

impl Link {
    fn new(now: Instant, output: Output) -> Self {
        Self {
            is_open: false,
            role: Role::Ordinary,
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
            read_turn: ReadTurn::default(),
            padding_cells: 0,
            received_cells: 0,
            sent_cells: 0,
            output,
        }
    }

    /// A link that the peer dialled, with the exported keying material of its TLS session.
    pub(crate) fn accepted(
        now: Instant,
        output: Output,
        from: Option<IpAddr>,
        exported: Option<[u8; 32]>,
    ) -> Self {
        Self { from, exported, ..Self::new(now, output) }
    }

    /// A link that this relay dials.
    pub(crate) fn dialled(now: Instant, output: Output, to: SocketAddr, ids: RelayIds) -> Self {
        Self { dialled: Some(Box::new(Dialled { ids, to })), ..Self::new(now, output) }
    }

    /// Whether the link is too old for new circuits: the data protected by its keys must not grow forever. As
    /// in C tor, it is closed after its last circuit.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        now - self.began_at >= AGE_MAX
    }

    /// A free circuit ID of this side's half.
    pub(crate) fn next_circ_id(&mut self) -> CircId {
        loop {
            self.opened = self.opened.wrapping_add(1);
            let circ_id = match self.dialled {
                Some(_) => CircId::of_initiator(self.opened),
                None => CircId::of_responder(self.opened),
            };
            if circ_id != CircId::LINK && self.circuits.find(circ_id).is_none() {
                return circ_id;
            }
        }
    }

    /// Whether an ID is in this side's half of the ID space (tor-spec §5.1.1).
    pub(crate) const fn is_our_choice(&self, circ_id: CircId) -> bool {
        circ_id.is_of_initiator() == self.dialled.is_some()
    }

    /// Whether this relay dialled it, or the peer has authenticated as a relay.
    pub(crate) const fn is_relays(&self) -> bool {
        self.dialled.is_some() || self.peer.is_some()
    }

    /// Whether this relay is dialling it.
    pub(crate) const fn is_dial(&self) -> bool {
        self.dialled.is_some() && !self.is_open
    }

    /// The expected peer, if this relay dialled it.
    pub(crate) fn expected(&self) -> Option<ExpectedPeer> {
        let Dialled { ids, to } = **self.dialled.as_ref()?;
        Some(ExpectedPeer { ids, address: to.ip() })
    }

    /// The authenticated relay at the other end.
    pub(crate) fn peer(&self) -> Option<&RelayIds> {
        self.peer.as_deref()
    }

    /// The peer's address.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.dialled.as_ref().map(|dialled| dialled.to.ip()).or(self.from)
    }

    /// Whether circuits may be extended over it to a relay that is said to have these addresses.
    ///
    /// As in C tor: if the link is canonical, or the address is the requested one. Otherwise a client that
    /// names the wrong address of a relay, and forwards everything there, would see all traffic that other
    /// clients send to that relay through this one.
    pub(crate) fn leads_to(&self, ids: &RelayIds, addresses: &[SocketAddr]) -> bool {
        let Some(peer) = self.peer() else { return false };
        let has_address = || addresses.iter().any(|address| Some(address.ip()) == self.ip());
        self.role == Role::Ordinary
            && peer.rsa == ids.rsa
            && ids.ed25519.is_none_or(|ed25519| peer.ed25519 == Some(ed25519))
            && (self.is_canonical || has_address())
    }
}

/// The circuits on one link, by their IDs on it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CircuitIds {
    /// The circuit of the last cell: the next cell most likely belongs to it.
    last: Option<(CircId, (CircuitIndex, Direction))>,
    entries: BTreeMap<CircId, (CircuitIndex, Direction)>,
}

impl CircuitIds {
    /// The circuit with this ID, and the direction of cells that arrive on this link.
    #[inline]
    pub(crate) fn find(&mut self, circ_id: CircId) -> Option<(CircuitIndex, Direction)> {
        if let Some((known, found)) = self.last
            && known == circ_id
        {
            return Some(found);
        }
        let found = self.entries.get(&circ_id).copied()?;
        self.last = Some((circ_id, found));
        Some(found)
    }

    /// Whether there is a circuit with this ID.
    pub(crate) fn contains(&self, circ_id: CircId) -> bool {
        self.entries.contains_key(&circ_id)
    }

    pub(crate) fn add(&mut self, circ_id: CircId, index: CircuitIndex, direction: Direction) {
        self.entries.insert(circ_id, (index, direction));
    }

    pub(crate) fn remove(&mut self, circ_id: CircId) {
        self.entries.remove(&circ_id);
        self.last = None;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The circuits created by the peer.
    pub(crate) fn created_by_peer(&self) -> impl Iterator<Item = CircuitIndex> {
        let theirs =
            self.entries.values().filter(|(_, direction)| *direction == Direction::Forward);
        theirs.map(|(index, _)| *index)
    }

    pub(crate) fn indices(&self) -> Vec<CircuitIndex> {
        self.entries.values().map(|(index, _)| *index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_small() {
        let bytes = size_of::<Link>();
        assert!(bytes <= 464, "{bytes} bytes");
    }
}
