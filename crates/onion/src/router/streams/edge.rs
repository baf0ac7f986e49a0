use crate::cell::CELLS_PER_RECORD;
use crate::cell::relay::MAX_DATA_LEN;
use crate::flow::control::{BlockedMark, CircuitFlow, Flow, PathState, SendmeTags};
use crate::node::ConnId;
use alloc::collections::BTreeMap;

/// DATA cells after which one has some random bytes, so that nobody can know the tag that a SENDME must
/// have without having received the cells (proposal 289). One in 31, that is, or in as many as have a
/// SENDME, if they are fewer.
const RANDOM_AFTER: u8 = 30;

/// Bytes of a zero padding and of the random one behind it (tor-spec §6.1).
const PADDING_GAP: usize = 4;
const RANDOM_LEN: usize = 16;

/// Bytes of data in a cell with random padding.
const RANDOM_DATA_LEN_MAX: usize = MAX_DATA_LEN - PADDING_GAP - RANDOM_LEN;

/// Cells that one reading from a destination may fill: those of a TLS record.
const READING_CELLS: usize = CELLS_PER_RECORD;

/// What a circuit has at its end here: its flow control and its streams.
#[derive(Debug)]
pub(in crate::router) struct Edge {
    pub(in crate::router) flow: Flow,
    pub(in crate::router) tags: SendmeTags,
    /// By their numbers on the circuit.
    streams: BTreeMap<u16, ConnId>,
    /// The stream that was read last: the others come first when there is room again.
    last_read: u16,
    /// DATA cells before one must have random bytes, from one such cell on, and now.
    random_after: u8,
    random_in: u8,
    /// The queue to the link is long: no stream is read until it is short again.
    is_blocked: bool,
    /// When it is long.
    high_cells: u32,
}

/// How a cell of data is to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) struct Filling {
    /// Bytes of data.
    pub(in crate::router) data_len: usize,
    /// Where random bytes go, from the beginning of the data.
    pub(in crate::router) random: Option<(usize, usize)>,
}

/// Streams in the order in which they are to be read again.
pub(in crate::router) struct Wake<'a> {
    streams: &'a BTreeMap<u16, ConnId>,
    last_read: u16,
}

impl Wake<'_> {
    pub(in crate::router) fn iter(&self) -> impl Iterator<Item = ConnId> {
        let after = self.last_read.wrapping_add(1);
        let (late, early) = (self.streams.range(after..), self.streams.range(..after));
        late.chain(early).map(|(_, conn)| *conn)
    }
}

impl Edge {
    /// The end of a circuit whose queue to the link holds `queue_limit_cells` at most.
    pub(in crate::router) fn new(flow: Flow, queue_limit_cells: u32) -> Self {
        let random_after = match &flow {
            Flow::Fixed(_) => RANDOM_AFTER,
            Flow::Vegas(vegas) => RANDOM_AFTER.min(vegas.sendme_cells().saturating_sub(1)),
        };
        Self {
            flow,
            tags: SendmeTags::new(),
            streams: BTreeMap::new(),
            last_read: 0,
            random_after,
            random_in: random_after,
            is_blocked: false,
            // Half is left to cells other than of data.
            high_cells: BlockedMark::HIGH_CELLS.min(queue_limit_cells / 2).max(1),
        }
    }

    /// The stream of this number.
    #[inline]
    pub(in crate::router) fn find(&self, stream_id: u16) -> Option<ConnId> {
        self.streams.get(&stream_id).copied()
    }

    pub(in crate::router) fn add(&mut self, stream_id: u16, conn: ConnId) {
        self.streams.insert(stream_id, conn);
    }

    pub(in crate::router) fn remove(&mut self, stream_id: u16) -> Option<ConnId> {
        self.streams.remove(&stream_id)
    }

    pub(in crate::router) fn len(&self) -> usize {
        self.streams.len()
    }

    /// All its streams.
    pub(in crate::router) fn conns(&self) -> impl Iterator<Item = ConnId> {
        self.streams.values().copied()
    }

    /// Those to be read again, in turn: the one that was read last comes last.
    pub(in crate::router) const fn wake(&self) -> Wake<'_> {
        Wake { streams: &self.streams, last_read: self.last_read }
    }

    /// What a sender knows of its way out when a SENDME comes.
    pub(in crate::router) fn path(&self, queued_cells: usize) -> PathState {
        let queued_cells = u32::try_from(queued_cells).unwrap_or(u32::MAX);
        PathState { is_link_blocked: self.is_blocked, queued_cells }
    }

    /// Bytes that may be read from a stream that has room for `stream_bytes`, with so many cells in
    /// the queue to the link. They fit into cells that may be sent.
    pub(in crate::router) fn room_bytes(&self, queued_cells: usize, stream_bytes: u64) -> usize {
        if self.is_blocked {
            return 0;
        }
        let queue_cells = (self.high_cells as usize).saturating_sub(queued_cells);
        let stream_bytes = usize::try_from(stream_bytes).unwrap_or(usize::MAX);
        let stream_cells = stream_bytes.div_ceil(MAX_DATA_LEN);
        let flow_cells = self.flow.room_cells() as usize;
        // No more than one of them has random bytes.
        let reading_cells = READING_CELLS.min(usize::from(self.random_after) + 1);
        let cells = flow_cells.min(queue_cells).min(stream_cells).min(reading_cells);
        let has_random = usize::from(self.random_in) < cells;
        let random_len = if has_random { MAX_DATA_LEN - RANDOM_DATA_LEN_MAX } else { 0 };
        stream_bytes.min(cells * MAX_DATA_LEN - random_len)
    }

    /// How the next cell is to be filled from `available` bytes.
    pub(in crate::router) const fn fill(&mut self, available: usize) -> Filling {
        let most = if self.random_in == 0 { RANDOM_DATA_LEN_MAX } else { MAX_DATA_LEN };
        let data_len = if available < most { available } else { most };
        if data_len <= RANDOM_DATA_LEN_MAX {
            self.random_in = self.random_after;
            let begin = data_len + PADDING_GAP;
            Filling { data_len, random: Some((begin, begin + RANDOM_LEN)) }
        } else {
            self.random_in -= 1;
            Filling { data_len, random: None }
        }
    }

    /// Data of a stream has been put into the queue, which has this length now. Gives the length at
    /// which the streams are to be woken, if they must wait for it.
    pub(in crate::router) fn handle_packaged(
        &mut self,
        stream_id: u16,
        queued_cells: usize,
    ) -> Option<usize> {
        self.last_read = stream_id;
        if queued_cells >= self.high_cells as usize {
            self.is_blocked = true;
        }
        self.is_blocked.then_some(BlockedMark::LOW_CELLS.min(self.high_cells / 2) as usize)
    }

    /// The queue to the link is short again. True if streams have waited for that.
    pub(in crate::router) const fn handle_unblocked(&mut self) -> bool {
        core::mem::replace(&mut self.is_blocked, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn edge() -> Edge {
        Edge::new(Flow::default(), 2500)
    }

    #[test]
    fn streams_take_turns() {
        let mut edge = edge();
        for stream_id in [1, 7, u16::MAX] {
            edge.add(stream_id, ConnId(stream_id.into()));
        }
        let turns = |edge: &Edge| edge.wake().iter().map(|conn| conn.0).collect::<Vec<_>>();
        assert_eq!(turns(&edge), [1, 7, 65_535]);
        edge.handle_packaged(1, 1);
        assert_eq!(turns(&edge), [7, 65_535, 1]);
        edge.handle_packaged(u16::MAX, 1);
        assert_eq!(turns(&edge), [1, 7, 65_535]);
    }

    #[test]
    fn nothing_is_read_while_the_queue_is_long() {
        let mut edge = edge();
        assert_eq!(edge.handle_packaged(1, 255), None);
        assert_eq!(edge.room_bytes(255, u64::MAX), MAX_DATA_LEN);
        assert_eq!(edge.handle_packaged(1, 256), Some(10));
        assert_eq!(edge.room_bytes(11, u64::MAX), 0);
        assert!(edge.handle_unblocked() && !edge.handle_unblocked());
        assert_eq!(edge.room_bytes(10, u64::MAX), 31 * MAX_DATA_LEN - 20, "one has random bytes");
    }

    proptest! {
        /// What may be read never needs more cells than may be sent.
        #[test]
        fn what_may_be_read_fits(
            steps in prop::collection::vec((0usize..300, 0u64..40_000, 1usize..16_000), 1..200),
        ) {
            let mut edge = edge();
            let mut since_random = 0;
            for (queued, stream_bytes, wanted) in steps {
                let room = edge.room_bytes(queued, stream_bytes);
                prop_assert!(room as u64 <= stream_bytes);
                let most = (256usize.saturating_sub(queued)).min(31);
                let most = most.min(usize::try_from(stream_bytes.div_ceil(498)).unwrap());
                let (mut left, mut cells) = (room.min(wanted), 0);
                while left > 0 {
                    let filling = edge.fill(left);
                    prop_assert!(filling.data_len > 0);
                    left -= filling.data_len;
                    cells += 1;
                    since_random += 1;
                    if let Some((begin, end)) = filling.random {
                        prop_assert!(begin >= filling.data_len + 4 && end <= MAX_DATA_LEN);
                        since_random = 0;
                    }
                    prop_assert!(since_random <= usize::from(RANDOM_AFTER));
                }
                prop_assert!(cells <= most, "{cells} cells, {most} allowed");
            }
        }
    }
}
