use super::lookups::{LOOKUP_MAX, Lookups};
use super::ranking::{Ranking, Source};
use super::{State, StreamKind};
use crate::cell_model::{Buffer, CellModel, PayloadSlice};
use crate::node::{ConnId, DnsQuery, Lookup, LookupId};
use crate::router::circuits::TunnelIndex;
use crate::router::conns::Conns;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A connection that accepts nothing of its remaining data is dropped after this time, as in tor.
const DRAINING_MAX: Duration = Duration::from_secs(15);

/// The queues of actions for streams, and for connections whose streams are closed.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Memory of data for destinations, in bytes.
    held_bytes: usize,
    /// The number of streams of each kind, and of their connections that are not closed yet.
    counts: [usize; 2],
    /// Open streams, by tunnel.
    rankings: [Ranking; 2],
    /// Some may be gone.
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    lookups: Lookups,
    /// Streams that are limited by their clients' advised rate, and when they may be read again.
    rated: BTreeSet<(Instant, ConnId)>,
}

impl Streams {
    /// A connection is closed, by either side; its number is free.
    pub(crate) fn remove<S: CellModel>(&mut self, conns: &mut Conns<S>, conn: ConnId) {
        let Some(stream) = conns.remove_stream(conn) else { return };
        self.held_bytes -= stream.buffer.held_bytes();
        self.counts[stream.kind as usize] -= 1;
        if let State::Resolving { lookup, .. } | State::Asking { lookup } = stream.state {
            self.lookups.forget(lookup);
        }
        if let Some(at) = stream.rated_until {
            self.rated.remove(&(at, conn));
        }
        conns.release(conn);
    }

    /// Adds a stream.
    pub(super) fn handle_added(
        &mut self,
        kind: StreamKind,
        source: Source,
        tunnel: TunnelIndex,
        conn: ConnId,
    ) {
        self.counts[kind as usize] += 1;
        self.rankings[kind as usize].add(source, tunnel, conn);
    }

    /// Removes a stream from its tunnel.
    pub(super) fn handle_over(&mut self, kind: StreamKind, tunnel: TunnelIndex, conn: ConnId) {
        self.rankings[kind as usize].remove(tunnel, conn);
    }

    /// Closes all streams of a tunnel.
    pub(crate) fn handle_tunnel_over(&mut self, tunnel: TunnelIndex) {
        self.rankings.iter_mut().for_each(|ranking| ranking.remove_tunnel(tunnel));
        self.lookups.handle_tunnel_over(tunnel);
    }

    /// The number of streams of this kind, and of their connections that are not closed yet.
    pub(super) const fn count(&self, kind: StreamKind) -> usize {
        self.counts[kind as usize]
    }

    /// The newest stream of the neighbour, and of its tunnel, that has most of this kind, if that has more than this one.
    pub(super) fn richer_than(
        &self,
        kind: StreamKind,
        source: Source,
        tunnel: TunnelIndex,
    ) -> Option<ConnId> {
        self.rankings[kind as usize].richer_than(source, tunnel)
    }

    /// Memory of data for destinations, in bytes.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether a tunnel may make another DNS query.
    pub(crate) fn may_ask(&self, tunnel: TunnelIndex) -> bool {
        self.lookups.has_room(tunnel)
    }

    /// Makes a DNS query for a stream.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        tunnel: TunnelIndex,
        conn: ConnId,
        question: DnsQuery,
    ) -> LookupId {
        self.lookups.ask(now, tunnel, conn, question)
    }

    /// Takes the stream that made this query; `None` if it is gone.
    pub(crate) fn take_asker(&mut self, id: LookupId) -> Option<ConnId> {
        self.lookups.take_asker(id)
    }

    pub(crate) fn poll_lookup(&mut self) -> Option<Lookup> {
        self.lookups.poll()
    }

    /// Buffers a client's data for a stream; returns the length of the buffer.
    pub(crate) fn buffer<S: CellModel>(
        &mut self,
        now: Instant,
        conns: &mut Conns<S>,
        conn: ConnId,
        data: S::PayloadSlice<'_>,
    ) -> usize {
        let Some(stream) = conns.stream_mut(conn) else { return 0 };
        let before = stream.buffer.held_bytes();
        stream.age.handle_added(now, data.len());
        stream.buffer.push(data);
        self.held_bytes = self.held_bytes + stream.buffer.held_bytes() - before;
        let buffered_bytes = stream.buffer.len();
        self.wake(conns, conn);
        buffered_bytes
    }

    /// Takes data for the destination; returns the number of bytes taken and left.
    pub(crate) fn unbuffer<S: CellModel>(
        &mut self,
        now: Instant,
        conns: &mut Conns<S>,
        conn: ConnId,
        room: S::Room<'_>,
    ) -> (usize, usize) {
        let Some(stream) = conns.stream_mut(conn) else { return (0, 0) };
        if !stream.state.is_writable() {
            return (0, 0);
        }
        let before = stream.buffer.held_bytes();
        let taken = stream.buffer.pop_into(room);
        self.held_bytes = self.held_bytes + stream.buffer.held_bytes() - before;
        let left = stream.buffer.len();
        stream.age.handle_taken(now, taken, left);
        if taken > 0 {
            stream.since = now;
        }
        (taken, left)
    }

    /// Queues a connection for writing, once, if it has data.
    pub(crate) fn wake<S: CellModel>(&mut self, conns: &mut Conns<S>, conn: ConnId) {
        let Some(stream) = conns.stream_mut(conn) else { return };
        if stream.state.is_writable() && !stream.buffer.is_empty() && !stream.is_writable_named {
            stream.is_writable_named = true;
            self.writable.push_back(conn);
        }
    }

    pub(crate) fn poll_writable<S: CellModel>(&mut self, conns: &mut Conns<S>) -> Option<ConnId> {
        loop {
            let conn = self.writable.pop_front()?;
            if let Some(stream) = conns.stream_mut(conn)
                && core::mem::take(&mut stream.is_writable_named)
                && stream.state.is_writable()
            {
                return Some(conn);
            }
        }
    }

    /// Queues a connection for reading, once.
    pub(crate) fn wake_reading<S: CellModel>(&mut self, conns: &mut Conns<S>, conn: ConnId) {
        let Some(stream) = conns.stream_mut(conn) else { return };
        if stream.state == State::Open && !stream.is_readable_named {
            stream.is_readable_named = true;
            self.readable.push_back(conn);
        }
    }

    pub(crate) fn poll_readable<S: CellModel>(&mut self, conns: &mut Conns<S>) -> Option<ConnId> {
        loop {
            let conn = self.readable.pop_front()?;
            if let Some(stream) = conns.stream_mut(conn)
                && core::mem::take(&mut stream.is_readable_named)
                && stream.state == State::Open
            {
                return Some(conn);
            }
        }
    }

    /// Evaluates the stream's flow control after a change. Returns true if the stream can be read now.
    pub(crate) fn update_room<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        now: Instant,
        conn: ConnId,
    ) -> bool {
        let Some(stream) = conns.stream_mut(conn) else { return false };
        stream.update_room(now);
        let (before, room_bytes) = (stream.rated_until.take(), stream.room_bytes);
        if room_bytes == 0 {
            stream.rated_until = stream.waits_until();
        }
        let after = stream.rated_until;
        if before != after {
            before.map(|at| self.rated.remove(&(at, conn)));
            after.map(|at| self.rated.insert((at, conn)));
        }
        room_bytes > 0
    }

    /// When the next rate-limited stream may be read again.
    pub(crate) fn rated_at(&self) -> Option<Instant> {
        self.rated.first().map(|(at, _)| *at)
    }

    /// Wakes rate-limited streams that may be read again.
    pub(crate) fn wake_rated<S: CellModel>(&mut self, conns: &mut Conns<S>, now: Instant) {
        while let Some((at, conn)) = self.rated.first().copied()
            && at <= now
        {
            self.rated.remove(&(at, conn));
            if let Some(stream) = conns.stream_mut(conn) {
                stream.rated_until = None;
            }
            if self.update_room(conns, now, conn) {
                self.wake_reading(conns, conn);
            }
        }
    }

    /// The stream is closed. Its connection is closed once everything is written; nothing more is read from it.
    pub(crate) fn finish<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        now: Instant,
        conn: ConnId,
    ) {
        let Some(stream) = conns.stream_mut(conn) else { return };
        match stream.state {
            // The shell does not know it.
            State::Resolving { .. } | State::Asking { .. } => self.remove(conns, conn),
            State::Open if !stream.buffer.is_empty() => {
                stream.state = State::Draining;
                stream.since = now;
                stream.room_bytes = 0;
                if let Some(at) = stream.rated_until.take() {
                    self.rated.remove(&(at, conn));
                }
            }
            State::Connecting { .. } | State::Open => self.close(conns, conn),
            State::Draining | State::Closing => {}
        }
    }

    /// Closes a connection, and drops unwritten data.
    pub(crate) fn close<S: CellModel>(&mut self, conns: &mut Conns<S>, conn: ConnId) {
        let Some(stream) = conns.stream_mut(conn) else { return };
        if stream.state == State::Closing {
            return;
        }
        stream.state = State::Closing;
        stream.room_bytes = 0;
        let dropped = core::mem::take(&mut stream.buffer);
        if let Some(at) = stream.rated_until.take() {
            self.rated.remove(&(at, conn));
        }
        self.held_bytes -= dropped.held_bytes();
        self.to_close.push_back(conn);
    }

    /// The next connection to close; it is forgotten.
    pub(crate) fn poll_close<S: CellModel>(&mut self, conns: &mut Conns<S>) -> Option<ConnId> {
        loop {
            let conn = self.to_close.pop_front()?;
            if conns.stream(conn).is_some_and(|stream| stream.state == State::Closing) {
                self.remove(conns, conn);
                return Some(conn);
            }
        }
    }

    /// Periodic upkeep: closes connections that accept nothing, releases unused memory, and returns streams
    /// whose lookups have timed out.
    pub(crate) fn expire<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        now: Instant,
    ) -> Vec<ConnId> {
        self.lookups.expire(now);
        let (mut stuck, mut unanswered) = (Vec::new(), Vec::new());
        for (conn, stream) in conns.streams_mut() {
            let before = stream.buffer.held_bytes();
            stream.buffer.shrink();
            self.held_bytes = self.held_bytes + stream.buffer.held_bytes() - before;
            let waited = now - stream.since;
            match stream.state {
                State::Draining if waited >= DRAINING_MAX => stuck.push(conn),
                State::Resolving { .. } | State::Asking { .. } if waited >= LOOKUP_MAX => {
                    unanswered.push(conn);
                }
                _ => {}
            }
        }
        stuck.into_iter().for_each(|conn| self.close(conns, conn));
        unanswered
    }
}

#[cfg(test)]
mod tests;
