//! The streams of one end, in round-robin order.

use crate::cell_model::StreamId;
use alloc::collections::BTreeMap;

/// The streams of one end by stream ID; `H` is that end's handle of a stream.
#[derive(Clone, Debug)]
pub struct Tunnel<H> {
    streams: BTreeMap<StreamId, H>,
    /// The stream served last: the others come first when there is space again.
    last_served: StreamId,
    /// The stream ID assigned last.
    last_given: StreamId,
}

impl<H> Default for Tunnel<H> {
    fn default() -> Self {
        Self { streams: BTreeMap::new(), last_served: StreamId(0), last_given: StreamId(0) }
    }
}

impl<H: Copy> Tunnel<H> {
    /// The stream with this ID.
    #[inline]
    #[must_use]
    pub fn find(&self, stream_id: StreamId) -> Option<H> {
        self.streams.get(&stream_id).copied()
    }

    /// Adds a stream.
    pub fn add(&mut self, stream_id: StreamId, stream: H) {
        self.streams.insert(stream_id, stream);
    }

    /// Removes a stream.
    pub fn remove(&mut self, stream_id: StreamId) -> Option<H> {
        self.streams.remove(&stream_id)
    }

    /// The number of streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// All streams.
    pub fn iter(&self) -> impl Iterator<Item = H> {
        self.streams.values().copied()
    }

    /// An unused stream ID; `None` if all are in use.
    #[must_use]
    pub fn next_id(&mut self) -> Option<StreamId> {
        for _ in 0..=u16::MAX {
            self.last_given = StreamId(self.last_given.0.wrapping_add(1));
            if self.last_given != StreamId::CIRCUIT && !self.streams.contains_key(&self.last_given)
            {
                return Some(self.last_given);
            }
        }
        None
    }

    /// A stream was served: it comes last in the order.
    pub const fn handle_served(&mut self, stream_id: StreamId) {
        self.last_served = stream_id;
    }

    /// All streams in round-robin order, the one served last at the end.
    pub fn in_turn(&self) -> impl Iterator<Item = H> {
        let after = StreamId(self.last_served.0.wrapping_add(1));
        let (late, early) = (self.streams.range(after..), self.streams.range(..after));
        late.chain(early).map(|(_, stream)| *stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn streams_are_served_round_robin() {
        let mut tunnel = Tunnel::default();
        for stream_id in [1, 7, u16::MAX] {
            tunnel.add(StreamId(stream_id), stream_id);
        }
        let turns = |tunnel: &Tunnel<u16>| tunnel.in_turn().collect::<Vec<_>>();
        assert_eq!(turns(&tunnel), [1, 7, 65_535]);
        tunnel.handle_served(StreamId(1));
        assert_eq!(turns(&tunnel), [7, 65_535, 1]);
        tunnel.handle_served(StreamId(u16::MAX));
        assert_eq!(turns(&tunnel), [1, 7, 65_535]);
    }

    #[test]
    fn stream_ids_are_unique_and_never_zero() {
        let mut tunnel = Tunnel::default();
        for expected in 1..=u16::MAX {
            let id = tunnel.next_id().expect("one is free");
            assert_eq!(id.0, expected);
            tunnel.add(id, ());
        }
        assert_eq!(tunnel.next_id(), None);
        tunnel.remove(StreamId(9));
        assert_eq!(tunnel.next_id(), Some(StreamId(9)));
    }
}
