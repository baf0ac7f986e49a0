//! Carrying bytes between nodes.

use super::config::{NodeId, WireError};
use super::conn::{End, LinkId, Side, Tcp};
use super::event_queue::{Event, Load};
use super::path::Path;
use super::tcp::{Chunk, Receiver, SEGMENT_BYTES, Sender};
use super::{Resident, Wire};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use onion::cell::CELL_LEN;
use onion::cell::CELLS_PER_RECORD;
use onion::node::{ConnId, Security};
use onion::{Duration, Instant};

/// The transmit buffer: a record, as on real sockets.
pub(super) fn scratch() -> Vec<u8> {
    vec![0; CELLS_PER_RECORD * CELL_LEN]
}

impl Wire {
    pub(super) fn latency(&self, one: NodeId, other: NodeId) -> Duration {
        let own = self.latencies.get(&(one.min(other), one.max(other))).copied();
        let by_path = || self.paths.get(&(one, other)).map(|path| path.model.latency);
        let by_all = || self.all_paths.map(|model| model.latency);
        own.or_else(by_path).or_else(by_all).unwrap_or(self.config.latency)
    }

    /// The TCP state of one side of a new connection, if the path has a model.
    pub(super) fn tcp(&self, from: NodeId, to: NodeId) -> Option<Box<Tcp>> {
        let has_model = self.all_paths.is_some() || self.paths.contains_key(&(from, to));
        let window_end = self.config.receive_buffer_bytes as u64;
        let sender = Sender::new(window_end);
        has_model.then(|| Box::new(Tcp { sender, receiver: Receiver::default(), window_end }))
    }

    /// Polls a node's data for a connection while the send buffer has space.
    pub(super) fn flush(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other()).map(|end| end.node);
        let Some(end) = link.end_mut(side) else { return };
        end.wants_flush = true;
        if !end.is_connected || end.is_closed {
            return;
        }
        let node = end.node;
        let latency = other.map_or(self.config.latency, |other| self.latency(node, other));
        let Some(end) = self.links.get_mut(&id).and_then(|link| link.end_mut(side)) else { return };
        let resident = &mut self.residents[node.0];
        while !end.is_full(self.config.send_buffer_bytes) {
            let len = resident.node.poll_transmit(self.now, end.conn, &mut self.scratch);
            if len == 0 {
                end.wants_flush = false;
                break;
            }
            resident.sent_bytes += len as u64;
            if let Some(tcp) = &mut end.tcp {
                tcp.sender.write(&self.scratch[..len]);
                continue;
            }
            let left_at =
                resident.egress.as_mut().map_or(self.now, |egress| egress.pass(self.now, len));
            end.last_arrival = end.last_arrival.max(left_at + latency);
            end.under_way_bytes += len;
            let load = Load::Bytes(self.scratch[..len].to_vec());
            self.events.plan(end.last_arrival, Event::Reached(id, side.other(), load));
        }
        self.send_chunks(id, side);
    }

    /// One side's TCP gets an acknowledgement and may continue.
    pub(super) fn with_sender(&mut self, id: LinkId, side: Side, handle: impl FnOnce(&mut Sender)) {
        let end = self.links.get_mut(&id).and_then(|link| link.end_mut(side));
        let Some(tcp) = end.and_then(|end| end.tcp.as_mut()) else { return };
        handle(&mut tcp.sender);
        self.send_chunks(id, side);
        self.refilled.push_back((id, side));
    }

    /// Sends what one side's TCP allows.
    fn send_chunks(&mut self, id: LinkId, side: Side) {
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            let other = link.end(side.other()).map(|end| end.node);
            let (Some(end), Some(other)) = (link.end_mut(side), other) else { return };
            let Some(tcp) = &mut end.tcp else { return };
            let Some(chunk) = tcp.sender.next_chunk(self.now) else { break };
            let node = end.node;
            match self.pass(node, other, chunk.bytes.len()) {
                Some(at) => {
                    let load = Load::Chunk(chunk);
                    self.events.plan(at, Event::Reached(id, side.other(), load));
                }
                None => self.lose(id, side, chunk),
            }
        }
        let end = self.links.get(&id).and_then(|link| link.end(side));
        if end.is_some_and(|end| end.is_closed) {
            self.end(id, side);
        }
    }

    /// When bytes that are sent now arrive at the other node; `None` if they are lost.
    fn pass(&mut self, from: NodeId, to: NodeId, bytes: usize) -> Option<Instant> {
        let left_at = match &mut self.residents[from.0].egress {
            Some(egress) => egress.pass_or_drop(self.now, bytes)?,
            None => self.now,
        };
        let latency = self.latency(from, to);
        let model = self.all_paths;
        let now = self.now;
        let path = match self.paths.get_mut(&(from, to)) {
            Some(path) => path,
            None => self.paths.entry((from, to)).or_insert(Path::new(model?, now)),
        };
        let through_at = path.pass(left_at, bytes)?;
        let segments = (bytes as u64).div_ceil(SEGMENT_BYTES);
        let per_million = path.model.loss_per_million;
        let losses = (0..segments).filter(|_| self.losses.chance(per_million)).count();
        (losses == 0).then_some(through_at + latency)
    }

    fn lose(&mut self, id: LinkId, side: Side, chunk: Chunk) {
        let end = self.links.get_mut(&id).and_then(|link| link.end_mut(side));
        let Some(tcp) = end.and_then(|end| end.tcp.as_mut()) else { return };
        let number = chunk.number();
        let overdue_at = tcp.sender.lose(self.now, chunk);
        self.events.plan(overdue_at, Event::Overdue(id, side, number));
    }

    /// Bytes arrive at a node, whose receive rate may be limited.
    pub(super) fn handle_reached(
        &mut self,
        id: LinkId,
        side: Side,
        load: Load,
    ) -> Result<(), WireError> {
        let Some(end) = self.links.get(&id).and_then(|link| link.end(side)) else { return Ok(()) };
        let Some(ingress) = &mut self.residents[end.node.0].ingress else {
            return self.handle_arrived(id, side, load);
        };
        let through_at = match load {
            // Without TCP nothing would retransmit them.
            Load::Bytes(_) => Some(ingress.pass(self.now, load.len())),
            Load::Chunk(_) => ingress.pass_or_drop(self.now, load.len()),
        };
        match (through_at, load) {
            (Some(at), load) => self.events.plan(at, Event::Arrived(id, side, load)),
            (None, Load::Chunk(chunk)) => self.lose(id, side.other(), chunk),
            (None, Load::Bytes(_)) => {}
        }
        Ok(())
    }

    pub(super) fn handle_arrived(
        &mut self,
        id: LinkId,
        side: Side,
        load: Load,
    ) -> Result<(), WireError> {
        let chunk = match load {
            Load::Bytes(bytes) => {
                let taken = self.deliver(id, side, &bytes)?;
                self.handle_taken(id, side, taken);
                return Ok(());
            }
            Load::Chunk(chunk) => chunk,
        };
        let end = self.links.get_mut(&id).and_then(|link| link.end_mut(side));
        let Some(tcp) = end.and_then(|end| end.tcp.as_mut()) else { return Ok(()) };
        let head = chunk.head();
        let mut in_order = Vec::new();
        tcp.receiver.receive(chunk, |bytes| in_order.push(bytes));
        for bytes in in_order {
            self.deliver(id, side, &bytes)?;
        }
        let receive_buffer_bytes = self.config.receive_buffer_bytes as u64;
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let other = link.end(side.other()).map(|end| end.node);
        let (Some(end), Some(other)) = (link.end_mut(side), other) else { return Ok(()) };
        let node = end.node;
        let Some(window_end) = end.window_end(receive_buffer_bytes) else { return Ok(()) };
        let Some(tcp) = &mut end.tcp else { return Ok(()) };
        tcp.window_end = window_end;
        let ack = tcp.receiver.ack(head, window_end);
        let at = self.now + self.latency(node, other);
        self.events.plan(at, Event::Acked(id, side.other(), ack));
        self.tell_end(id, side);
        Ok(())
    }

    /// Gives a node the bytes that it accepts, and buffers the rest. Returns the number of bytes that are
    /// not buffered.
    fn deliver(&mut self, id: LinkId, side: Side, bytes: &[u8]) -> Result<usize, WireError> {
        self.fingerprint.add(self.now, id, side, bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            // The node may have closed it after the previous piece.
            let Some(link) = self.links.get_mut(&id) else { break };
            let security = link.security;
            let Some(end) = link.end_mut(side).filter(|end| !end.is_closed) else { break };
            let resident = &mut self.residents[end.node.0];
            let mut len_max = 0;
            if end.held.len() == 0 {
                len_max = resident.read_limit(self.now, end.conn, security).min(rest.len());
            }
            if len_max == 0 {
                end.held.push(rest);
                return Ok(bytes.len() - rest.len());
            }
            if let Some(cut) = self.config.piece_max_bytes {
                len_max = len_max.min(self.cuts.up_to(cut));
            }
            let (piece, later) = rest.split_at(len_max);
            rest = later;
            resident.read(self.now, end.conn, security, piece);
            let node = end.node;
            self.drain(node)?;
        }
        Ok(bytes.len())
    }

    /// Gives a node as much of the buffered bytes as it accepts; returns true if it may accept more.
    pub(super) fn release_held(&mut self, id: LinkId, side: Side) -> bool {
        let Some(link) = self.links.get_mut(&id) else { return false };
        let security = link.security;
        let Some(end) = link.end_mut(side).filter(|end| end.held.len() > 0) else { return false };
        let resident = &mut self.residents[end.node.0];
        let mut len_max = resident.read_limit(self.now, end.conn, security).min(end.held.len());
        if len_max == 0 {
            return false;
        }
        if let Some(cut) = self.config.piece_max_bytes {
            len_max = len_max.min(self.cuts.up_to(cut));
        }
        let piece = end.held.take(len_max);
        resident.read(self.now, end.conn, security, &piece);
        self.handle_taken(id, side, piece.len());
        self.open_window(id, side);
        self.tell_end(id, side);
        true
    }

    /// A node has read bytes: the other side may send as many more.
    fn handle_taken(&mut self, id: LinkId, side: Side, len: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(sender) = link.end_mut(side.other()).filter(|end| end.tcp.is_none()) {
            sender.under_way_bytes -= len;
            self.refilled.push_back((id, side.other()));
            self.tell_end(id, side);
        }
    }

    /// Sends a window update to the other side, if it is worthwhile.
    fn open_window(&mut self, id: LinkId, side: Side) {
        let receive_buffer_bytes = self.config.receive_buffer_bytes as u64;
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other()).map(|end| end.node);
        let (Some(end), Some(other)) = (link.end_mut(side), other) else { return };
        let node = end.node;
        let Some(until) = end.window_end(receive_buffer_bytes) else { return };
        let Some(tcp) = &mut end.tcp else { return };
        if until - tcp.window_end >= receive_buffer_bytes / 4 {
            tcp.window_end = until;
            let at = self.now + self.latency(node, other);
            self.events.plan(at, Event::Opened(id, side.other(), until));
        }
    }

    /// Resumes senders whose bytes have been read.
    pub(super) fn settle(&mut self) -> Result<(), WireError> {
        while let Some((id, side)) = self.refilled.pop_front() {
            let end = self.links.get(&id).and_then(|link| link.end(side));
            let Some(end) = end.filter(|end| end.wants_flush && !end.is_closed) else { continue };
            let node = end.node;
            self.flush(id, side);
            self.drain(node)?;
        }
        Ok(())
    }
}

impl Resident {
    /// The number of bytes of a connection that the node accepts now.
    fn read_limit(&mut self, now: Instant, conn: ConnId, security: Security) -> usize {
        match security {
            Security::Tls => self.node.poll_read_limit(now, Some(conn)),
            Security::Plain => self.node.receive_limit(conn),
        }
    }

    /// Gives the node these bytes. With TLS there are no others: it is without overhead here.
    fn read(&mut self, now: Instant, conn: ConnId, security: Security, bytes: &[u8]) {
        self.received_bytes += bytes.len() as u64;
        if security == Security::Tls {
            self.node.handle_read(now, Some(conn), bytes.len());
        }
        self.node.handle_bytes(now, conn, bytes);
    }
}

impl End {
    /// The right edge of its TCP window.
    fn window_end(&self, receive_buffer_bytes: u64) -> Option<u64> {
        let next = self.tcp.as_ref()?.receiver.next();
        Some(next - self.held.len() as u64 + receive_buffer_bytes)
    }
}
