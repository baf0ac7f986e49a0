//! Exit and directory streams: a table over all circuits, by the numbers of their connections.
//!
//! A stream is a connection without TLS, or is to become one: its number is a [`ConnId`] from its first
//! moment on. What its circuit knows of it is in [`Edge`].

mod buffer;
mod edge;
mod stream;

pub(super) use edge::Edge;
pub(super) use stream::{Asked, State, Stream};

use crate::node::{ConnId, Lookup, LookupId, Question};
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A connection that takes nothing of what is left for it is dropped after so long, as in tor.
const DRAINING_MAX: Duration = Duration::from_secs(15);

/// A lookup that is not answered for so long never will be (C tor: `RESOLVE_MAX_TIMEOUT`).
const LOOKUP_MAX: Duration = Duration::from_secs(300);

/// All streams, and connections whose streams are over and that still have bytes to write.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By connection. A place is empty where the number is a link's, or nobody's.
    slots: Vec<Option<Box<Stream>>>,
    count: usize,
    /// Bytes on their way to destinations.
    buffered_bytes: usize,
    /// Some may be gone since.
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    questions: VecDeque<Lookup>,
    /// Questions that are not answered yet.
    lookups: BTreeMap<LookupId, ConnId>,
    lookups_made: u32,
    /// Streams that are read no faster than their clients advise, and when they may be again.
    rated: BTreeSet<(Instant, ConnId)>,
}

impl Streams {
    pub(super) fn add(&mut self, conn: ConnId, stream: Stream) {
        let place = conn.0 as usize;
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        self.slots[place] = Some(Box::new(stream));
        self.count += 1;
    }

    #[inline]
    pub(super) fn get(&self, conn: ConnId) -> Option<&Stream> {
        self.slots.get(conn.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Stream> {
        self.slots.get_mut(conn.0 as usize)?.as_deref_mut()
    }

    /// It is gone: its number is free.
    pub(super) fn remove(&mut self, conn: ConnId) -> Option<Box<Stream>> {
        let stream = self.slots.get_mut(conn.0 as usize)?.take()?;
        self.count -= 1;
        self.buffered_bytes -= stream.buffer.len();
        self.forget_waiting(conn, &stream);
        Some(stream)
    }

    /// How many there are, and connections that are still to be emptied or closed.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes on their way to destinations.
    pub(super) const fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnId, &Stream)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(number, stream)| Some((ConnId(number), stream.as_deref()?)))
    }

    /// Asks the domain name system on behalf of a stream.
    pub(super) fn ask(&mut self, conn: ConnId, question: Question) -> LookupId {
        self.lookups_made = self.lookups_made.wrapping_add(1);
        let id = LookupId(self.lookups_made);
        self.lookups.insert(id, conn);
        self.questions.push_back(Lookup { id, question });
        id
    }

    /// The stream that has asked this; none if it is gone.
    pub(super) fn take_asker(&mut self, id: LookupId) -> Option<ConnId> {
        self.lookups.remove(&id)
    }

    pub(super) fn poll_lookup(&mut self) -> Option<Lookup> {
        loop {
            let lookup = self.questions.pop_front()?;
            if self.lookups.contains_key(&lookup.id) {
                return Some(lookup);
            }
        }
    }

    /// Nothing is to happen to the stream by itself any more.
    fn forget_waiting(&mut self, conn: ConnId, stream: &Stream) {
        if let State::Resolving { lookup, .. } | State::Asking { lookup } = stream.state {
            self.lookups.remove(&lookup);
        }
        if let Some(at) = stream.rated_until {
            self.rated.remove(&(at, conn));
        }
    }

    /// Puts bytes from the client into a stream's buffer.
    pub(super) fn buffer(&mut self, conn: ConnId, data: &[u8]) {
        let Some(stream) = self.get_mut(conn) else { return };
        stream.buffer.push(data);
        self.buffered_bytes += data.len();
        self.wake(conn);
    }

    /// Takes bytes for the destination; returns how many, and how many are left.
    pub(super) fn unbuffer(
        &mut self,
        now: Instant,
        conn: ConnId,
        out: &mut [u8],
    ) -> (usize, usize) {
        let Some(stream) = self.get_mut(conn) else { return (0, 0) };
        if !stream.state.is_writable() {
            return (0, 0);
        }
        let taken = stream.buffer.pop_into(out);
        let left = stream.buffer.len();
        if taken > 0 {
            stream.since = now;
        }
        self.buffered_bytes -= taken;
        (taken, left)
    }

    /// Names a connection for writing, once, if it has something to write.
    pub(super) fn wake(&mut self, conn: ConnId) {
        let Some(stream) = self.get_mut(conn) else { return };
        if stream.state.is_writable() && !stream.buffer.is_empty() && !stream.is_writable_named {
            stream.is_writable_named = true;
            self.writable.push_back(conn);
        }
    }

    pub(super) fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.writable.pop_front()?;
            if let Some(stream) = self.get_mut(conn)
                && core::mem::take(&mut stream.is_writable_named)
                && stream.state.is_writable()
            {
                return Some(conn);
            }
        }
    }

    /// Names a connection for reading, once.
    pub(super) fn wake_reading(&mut self, conn: ConnId) {
        let Some(stream) = self.get_mut(conn) else { return };
        if stream.state == State::Open && !stream.is_readable_named {
            stream.is_readable_named = true;
            self.readable.push_back(conn);
        }
    }

    pub(super) fn poll_readable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.readable.pop_front()?;
            if let Some(stream) = self.get_mut(conn)
                && core::mem::take(&mut stream.is_readable_named)
                && stream.state == State::Open
            {
                return Some(conn);
            }
        }
    }

    /// Looks again how much the stream's flow control lets be read, after something has changed. True
    /// if it can be read now.
    pub(super) fn update_room(&mut self, now: Instant, conn: ConnId) -> bool {
        let Some(stream) = self.get_mut(conn) else { return false };
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

    /// When the next stream may be read again whose client advises a rate.
    pub(super) fn rated_at(&self) -> Option<Instant> {
        self.rated.first().map(|(at, _)| *at)
    }

    /// Wakes streams whose advised rate lets them be read again.
    pub(super) fn wake_rated(&mut self, now: Instant) {
        while let Some((at, conn)) = self.rated.first().copied()
            && at <= now
        {
            self.rated.remove(&(at, conn));
            if let Some(stream) = self.get_mut(conn) {
                stream.rated_until = None;
            }
            if self.update_room(now, conn) {
                self.wake_reading(conn);
            }
        }
    }

    /// The stream is over. Its connection is closed once all is written; nothing more is read from it.
    /// True if the number is free at once, because the shell does not know it.
    pub(super) fn finish(&mut self, now: Instant, conn: ConnId) -> bool {
        let Some(stream) = self.get_mut(conn) else { return false };
        match stream.state {
            State::Resolving { .. } | State::Asking { .. } => {
                self.remove(conn);
                true
            }
            State::Open if !stream.buffer.is_empty() => {
                stream.state = State::Draining;
                stream.since = now;
                stream.room_bytes = 0;
                if let Some(at) = stream.rated_until.take() {
                    self.rated.remove(&(at, conn));
                }
                false
            }
            State::Connecting { .. } | State::Open => {
                self.close(conn);
                false
            }
            State::Draining | State::Closing => false,
        }
    }

    /// Closes a connection, and drops what is not written.
    pub(super) fn close(&mut self, conn: ConnId) {
        let Some(stream) = self.get_mut(conn) else { return };
        if stream.state == State::Closing {
            return;
        }
        stream.state = State::Closing;
        stream.room_bytes = 0;
        let buffered = core::mem::take(&mut stream.buffer).len();
        if let Some(at) = stream.rated_until.take() {
            self.rated.remove(&(at, conn));
        }
        self.buffered_bytes -= buffered;
        self.to_close.push_back(conn);
    }

    /// The next connection to be closed: it is forgotten.
    pub(super) fn poll_close(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.to_close.pop_front()?;
            if self.get(conn).is_some_and(|stream| stream.state == State::Closing) {
                self.remove(conn);
                return Some(conn);
            }
        }
    }

    /// Looks through all. Closes connections that take nothing, and gives back room that nobody uses;
    /// returns streams whose lookups have waited too long.
    pub(super) fn keep_up(&mut self, now: Instant) -> Vec<ConnId> {
        let (mut stuck, mut unanswered) = (Vec::new(), Vec::new());
        let slots = (0..).zip(&mut self.slots);
        for (number, stream) in slots.filter_map(|(n, stream)| Some((n, stream.as_deref_mut()?))) {
            stream.buffer.shrink();
            let waited = now - stream.since;
            match stream.state {
                State::Draining if waited >= DRAINING_MAX => stuck.push(ConnId(number)),
                State::Resolving { .. } | State::Asking { .. } if waited >= LOOKUP_MAX => {
                    unanswered.push(ConnId(number));
                }
                _ => {}
            }
        }
        stuck.into_iter().for_each(|conn| self.close(conn));
        unanswered
    }

    /// The connection with most bytes whose stream is over.
    pub(super) fn longest_draining(&self) -> Option<(ConnId, usize)> {
        let draining = self.iter().filter(|(_, stream)| stream.state == State::Draining);
        draining.map(|(conn, stream)| (conn, stream.buffer.len())).max_by_key(|(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests;
