use crate::cell::CircId;
use crate::link::Channel;
use crate::measure::protocol::Proof;
use crate::node::{ConnId, ListenerId};
use alloc::vec::Vec;

/// The end of a circuit that a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// To the target: circuits begin here.
    Outbound,
    /// From the target to a return relay: circuits end here.
    Inbound(ListenerId),
    /// None: it only probes whether the target's host is reachable.
    Probe,
}

/// The state of an outbound connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The link handshake.
    Opening,
    /// The measurer's proof is sent. Only in echo.
    Proving,
    /// Its circuits have been created.
    Begun,
}

/// One connection, from dialling or accepting to its end.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) side: Side,
    /// `None` until TLS is established.
    pub(super) channel: Option<Channel>,
    pub(super) circuits: CircuitTable,
    pub(super) stage: Stage,
    /// The proof to send on it. Only in echo.
    pub(super) proof: Option<Proof>,
    /// Whether a circuit that begins on it has got space for more cells.
    pub(super) has_room: bool,
    /// Whether it begins to send later.
    pub(super) is_held_back: bool,
    /// Whether it sends while only few circuits do.
    pub(super) has_few_circuits: bool,
    /// Whether it is in the queue of writable connections.
    pub(super) is_queued: bool,
    /// Whether the rate limit blocks it.
    pub(super) is_throttled: bool,
}

impl Conn {
    pub(super) fn new(side: Side, channel: Option<Channel>) -> Self {
        let circuits = CircuitTable::default();
        Self {
            side,
            channel,
            circuits,
            stage: Stage::Opening,
            proof: None,
            has_room: false,
            is_held_back: false,
            has_few_circuits: true,
            is_queued: false,
            is_throttled: false,
        }
    }
}

/// The circuits on one connection, by their IDs on it.
#[derive(Debug, Default)]
pub(super) struct CircuitTable {
    /// Sorted by ID; the number is the circuit's index in the measurement.
    entries: Vec<(CircId, u32)>,
    /// The circuit of the last cell: the next cell most likely belongs to it.
    last: usize,
    /// The next circuit to send, round-robin.
    turn: usize,
}

impl CircuitTable {
    /// The circuit with this ID.
    #[inline]
    pub(super) fn find(&mut self, circ_id: CircId) -> Option<u32> {
        if let Some((known, circuit)) = self.entries.get(self.last)
            && *known == circ_id
        {
            return Some(*circuit);
        }
        let at = self.entries.binary_search_by_key(&circ_id, |(known, _)| *known).ok()?;
        self.last = at;
        Some(self.entries[at].1)
    }

    /// Adds a circuit, unless its ID is taken.
    pub(super) fn add(&mut self, circ_id: CircId, circuit: u32) {
        if let Err(at) = self.entries.binary_search_by_key(&circ_id, |(known, _)| *known) {
            self.entries.insert(at, (circ_id, circuit));
        }
    }

    /// All circuits.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|(_, circuit)| *circuit)
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next circuit to send, round-robin.
    #[inline]
    pub(super) fn take_turn(&mut self) -> Option<(CircId, u32)> {
        let entry = self.entries.get(self.turn).or_else(|| self.entries.first()).copied();
        self.turn = if self.turn + 1 < self.entries.len() { self.turn + 1 } else { 0 };
        entry
    }
}

/// Connections by number; numbers are not reused.
#[derive(Debug, Default)]
pub(super) struct Conns {
    conns: Vec<Option<Conn>>,
}

impl Conns {
    pub(super) fn add(&mut self, conn: Conn) -> ConnId {
        self.conns.push(Some(conn));
        ConnId(u32::try_from(self.conns.len() - 1).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id.0 as usize)?.as_mut()
    }

    /// Returns what [`take`](Self::take) took.
    pub(super) fn put_back(&mut self, id: ConnId, conn: Conn) {
        if let Some(place) = self.conns.get_mut(id.0 as usize) {
            *place = Some(conn);
        }
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn take(&mut self, id: ConnId) -> Option<Conn> {
        self.conns.get_mut(id.0 as usize)?.take()
    }

    /// All connections.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        (0u32..).zip(&self.conns).filter(|(_, conn)| conn.is_some()).map(|(id, _)| ConnId(id))
    }
}
