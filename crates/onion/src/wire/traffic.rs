//! What the world does for its nodes: dials, carries, closes.

use super::agenda::Event;
use super::conn::{End, Link, LinkId, Side};
use super::tls::NullTls;
use super::{DRAIN_POLLS_MAX, NodeId, Wire, WireError};
use crate::cell::CELL_LEN;
use crate::measure::pump::CELLS_PER_RECORD;
use crate::node::{CloseCause, ConnId, Dial};
use crate::time::{Duration, Instant};
use alloc::vec;
use alloc::vec::Vec;

/// Room for what a node transmits at once: a record, as on real sockets.
pub(super) fn scratch() -> Vec<u8> {
    vec![0; CELLS_PER_RECORD * CELL_LEN]
}

impl Wire {
    /// Does all that a node wants.
    pub(super) fn drain(&mut self, id: NodeId) -> Result<(), WireError> {
        for _ in 0..DRAIN_POLLS_MAX {
            let node = &mut self.places[id.0].node;
            if let Some(dial) = node.poll_dial(self.now) {
                self.dial(id, dial);
            } else if let Some(conn) = node.poll_writable() {
                if let Some((link, side)) = self.places[id.0].conns.get(&conn).copied() {
                    self.flush(link, side);
                }
            } else if let Some(conn) = node.poll_close() {
                self.close(id, conn);
            } else {
                return Ok(());
            }
        }
        Err(WireError::NeverIdle { node: id, at: self.now })
    }

    /// Lets a planned event happen.
    pub(super) fn handle(&mut self, event: Event) -> Result<(), WireError> {
        match event {
            Event::Dialled(link) => self.handle_dialled(link),
            Event::Connected(link) => self.handle_connected(link),
            Event::Refused(link) => self.handle_gone(link, Side::Dialler, CloseCause::Refused),
            Event::Closed(link, side) => self.handle_gone(link, side, CloseCause::ByPeer),
            Event::Bytes(link, side, bytes) => self.handle_bytes(link, side, &bytes),
        }
    }

    fn latency(&self, one: NodeId, other: NodeId) -> Duration {
        let own = self.latencies.get(&(one.min(other), one.max(other)));
        own.copied().unwrap_or(self.config.latency)
    }

    fn dial(&mut self, node: NodeId, dial: Dial) {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let dialler = End::new(node, dial.conn, self.now);
        self.links.insert(link, Link { to: dial.to, dialler, acceptor: None });
        self.places[node.0].conns.insert(dial.conn, (link, Side::Dialler));
        let latency = match self.listeners.get(&dial.to) {
            Some(listener) => self.latency(node, listener.node),
            None => self.config.latency,
        };
        self.agenda.plan(self.now + latency, Event::Dialled(link));
    }

    fn handle_dialled(&mut self, id: LinkId) -> Result<(), WireError> {
        let is_full = self.links.len() > self.config.conns_max;
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let dialler = link.dialler.node;
        let listener = self.listeners.get(&link.to).filter(|_| !is_full);
        let Some(listener) = listener else {
            self.agenda.plan(self.now + self.config.latency, Event::Refused(id));
            return Ok(());
        };
        let node = listener.node;
        let tls = NullTls { link: id, certificate: None };
        let conn = self.places[node.0].node.handle_accepted(self.now, listener.id, &tls);
        if let Some(conn) = conn {
            let is_connected = true;
            link.acceptor = Some(End { is_connected, ..End::new(node, conn, self.now) });
            self.places[node.0].conns.insert(conn, (id, Side::Acceptor));
        }
        let answer_at = self.now + self.latency(dialler, node);
        self.agenda.plan(answer_at, Event::Connected(id));
        if conn.is_none() {
            // Refused only after TLS: the dialler sees it connect and close.
            self.agenda.plan(answer_at, Event::Closed(id, Side::Dialler));
        }
        self.drain(node)
    }

    fn handle_connected(&mut self, id: LinkId) -> Result<(), WireError> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let end = &mut link.dialler;
        if end.is_closed {
            return Ok(());
        }
        end.is_connected = true;
        let (node, conn) = (end.node, end.conn);
        let certificate = self.listeners.get(&link.to).map(|listener| &listener.certificate[..]);
        let tls = NullTls { link: id, certificate };
        self.fingerprint.add(self.now, id, Side::Dialler, &[]);
        self.places[node.0].node.handle_connected(self.now, conn, &tls);
        self.drain(node)?;
        self.flush(id, Side::Dialler); // what it named too early
        Ok(())
    }

    /// Takes from a node what it has for a connection, as long as the send buffer has room.
    fn flush(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other()).map(|end| end.node);
        let Some(end) = link.end_mut(side) else { return };
        end.wants_flush = true;
        if !end.is_connected || end.is_closed {
            return;
        }
        let latency = other.map_or(self.config.latency, |other| {
            let pair = (end.node.min(other), end.node.max(other));
            self.latencies.get(&pair).copied().unwrap_or(self.config.latency)
        });
        let place = &mut self.places[end.node.0];
        while end.under_way_bytes < self.config.send_buffer_bytes {
            let len = place.node.poll_transmit(self.now, end.conn, &mut self.scratch);
            if len == 0 {
                end.wants_flush = false;
                return;
            }
            let left_at =
                place.egress.as_mut().map_or(self.now, |egress| egress.send(self.now, len));
            end.last_arrival = end.last_arrival.max(left_at + latency);
            end.under_way_bytes += len;
            let bytes = Event::Bytes(id, side.other(), self.scratch[..len].to_vec());
            self.agenda.plan(end.last_arrival, bytes);
        }
    }

    fn handle_bytes(&mut self, id: LinkId, side: Side, bytes: &[u8]) -> Result<(), WireError> {
        self.fingerprint.add(self.now, id, side, bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece_max =
                self.config.piece_max_bytes.map_or(rest.len(), |max| self.cuts.up_to(max));
            let (piece, later) = rest.split_at(piece_max.min(rest.len()));
            rest = later;
            // The node may have closed it after the piece before.
            let Some(link) = self.links.get(&id) else { return Ok(()) };
            let Some(end) = link.end(side).filter(|end| !end.is_closed) else { break };
            let (node, conn) = (end.node, end.conn);
            self.places[node.0].node.handle_bytes(self.now, conn, piece);
            self.drain(node)?;
        }
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let Some(sender) = link.end_mut(side.other()) else { return Ok(()) };
        sender.under_way_bytes -= bytes.len();
        if sender.wants_flush && !sender.is_closed {
            let node = sender.node;
            self.flush(id, side.other());
            self.drain(node)?;
        }
        Ok(())
    }

    /// A node closes one of its connections.
    fn close(&mut self, node: NodeId, conn: ConnId) {
        let Some((id, side)) = self.places[node.0].conns.remove(&conn) else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other()).map(|end| end.node);
        let Some(end) = link.end_mut(side) else { return };
        end.is_closed = true;
        let last_arrival = end.last_arrival;
        match other {
            Some(other) => {
                let at = last_arrival.max(self.now + self.latency(node, other));
                self.agenda.plan(at, Event::Closed(id, side.other()));
            }
            // Nobody has heard of it yet.
            None => {
                self.links.remove(&id);
            }
        }
    }

    /// One side hears that a connection is gone. The other side knows.
    fn handle_gone(&mut self, id: LinkId, side: Side, cause: CloseCause) -> Result<(), WireError> {
        let Some(link) = self.links.remove(&id) else { return Ok(()) };
        let Some(end) = link.end(side).filter(|end| !end.is_closed) else { return Ok(()) };
        self.fingerprint.add(self.now, id, side, b"closed");
        let place = &mut self.places[end.node.0];
        place.conns.remove(&end.conn);
        place.node.handle_closed(self.now, end.conn, cause);
        self.drain(end.node)
    }
}

/// FNV-1a over what is delivered: enough to tell two runs apart, no protection against intent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    fn add(&mut self, now: Instant, link: LinkId, side: Side, bytes: &[u8]) {
        self.mix(now.as_nanos());
        self.mix(link.0 * 2 + u64::from(side == Side::Acceptor));
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    const fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    pub(super) const fn get(self) -> u64 {
        self.0
    }
}

/// A small generator for where to cut; what it cuts must not depend on any other randomness.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from one to `max`.
    fn up_to(&mut self, max: core::num::NonZeroUsize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        1 + usize::try_from(mixed % max.get() as u64).unwrap_or(0)
    }
}
