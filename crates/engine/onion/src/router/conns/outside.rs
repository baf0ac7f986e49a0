//! Memory that is held for connections outside the core: data that the driver has not written, and data that
//! arrived before the peer was authenticated.

use crate::node::{ConnId, Unwritten};
use crate::router::queue_age::QueueAge;
use crate::time::Instant;
use alloc::collections::BTreeMap;

/// Memory that is held for one connection.
#[derive(Debug, Default)]
struct Held {
    unwritten: Unwritten,
    /// Its counts are bytes.
    age: QueueAge,
    early_bytes: usize,
    early_since: Option<Instant>,
}

impl Held {
    const fn bytes(&self) -> usize {
        self.unwritten.held_bytes + self.early_bytes
    }
}

/// Memory that is held for all connections. Most of them have none and no entry.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    by_conn: BTreeMap<ConnId, Held>,
    bytes: usize,
}

impl Outside {
    /// Bytes of all connections.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Updates what the driver holds for a connection.
    pub(crate) fn set_unwritten(&mut self, now: Instant, id: ConnId, unwritten: Unwritten) {
        self.change(id, |held| {
            let before = held.unwritten.pending_bytes;
            let left = before.saturating_sub(unwritten.written_bytes);
            held.age.handle_taken(now, before - left, left);
            held.age.handle_added(now, unwritten.pending_bytes.saturating_sub(left));
            held.unwritten = unwritten;
        });
    }

    /// Updates what the face holds for a connection whose peer is not authenticated yet.
    pub(crate) fn set_early(&mut self, now: Instant, id: ConnId, bytes: usize) {
        self.change(id, |held| {
            held.early_bytes = bytes;
            held.early_since =
                held.early_since.filter(|_| bytes > 0).or((bytes > 0).then_some(now));
        });
    }

    fn change(&mut self, id: ConnId, change: impl FnOnce(&mut Held)) {
        let held = self.by_conn.entry(id).or_default();
        let before = held.bytes();
        change(held);
        let after = held.bytes();
        if after == 0 {
            self.by_conn.remove(&id);
        }
        self.bytes = self.bytes + after - before;
    }

    /// Nothing is held for the connection any longer.
    pub(crate) fn forget(&mut self, id: ConnId) {
        if let Some(held) = self.by_conn.remove(&id) {
            self.bytes -= held.bytes();
        }
    }

    /// Since when the oldest data of each connection has been held.
    pub(crate) fn since(&self) -> impl Iterator<Item = (ConnId, Instant)> + '_ {
        self.by_conn.iter().filter_map(|(id, held)| {
            let both = [held.age.since(), held.early_since];
            Some((*id, both.into_iter().flatten().min()?))
        })
    }

    /// Checks the sum.
    ///
    /// # Panics
    /// If it is wrong.
    pub(crate) fn check(&self) {
        let sum: usize = self.by_conn.values().map(Held::bytes).sum();
        assert_eq!(sum, self.bytes, "bytes outside of the core");
    }
}
