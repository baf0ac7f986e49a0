//! The end of one circuit: flow control and the state of its queue.

use super::conflux::LegState;
use crate::cell::CELLS_PER_RECORD;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell_model::Salt;
use crate::flow::control::{BlockedMark, Flow, FlowState, PathState};

/// The interval in DATA cells of cells with random bytes, so that nobody can know the tag of a SENDME without
/// receiving the cells (proposal 289): one in 31, or in the number of cells of a SENDME if that is smaller.
const SALT_AFTER: u8 = 30;

/// The length of zero padding before the random bytes (tor-spec §6.1).
const PADDING_GAP: usize = 4;

/// Bytes of data that random padding replaces.
const SALT_LEN: usize = PADDING_GAP + size_of::<Salt>();

/// Maximum number of cells that one read from a destination may fill: those of a TLS record.
const READING_CELLS: usize = CELLS_PER_RECORD;

/// The end of one circuit: its flow control, and whether the queue to its link has space.
///
/// The circuit's cryptography is separate, since relays have it also for circuits that end elsewhere; it
/// provides the tags for the [`Flow`].
#[derive(Debug)]
pub struct Leg {
    /// The windows for DATA cells.
    pub flow: Flow,
    /// The message format in cells of the layer between the two ends.
    format: RelayFormat,
    /// The interval of DATA cells with random bytes, and the number of cells until the next one.
    salt_after: u8,
    salt_in: u8,
    /// Whether the queue to the link is long: no stream is read until it is short again.
    is_blocked: bool,
    /// The length from which on it is long.
    high_cells: u32,
}

/// The layout of a DATA cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Bytes of data.
    pub data_len: usize,
    /// The offset of random bytes from the beginning of the data.
    pub salt_at: Option<usize>,
}

impl Leg {
    /// The end of a circuit with this format, whose queue to the link has at most `queue_limit_cells`.
    #[must_use]
    pub fn new(flow: Flow, format: RelayFormat, queue_limit_cells: u32) -> Self {
        let before_sendme = flow.sendme_cells().saturating_sub(1);
        let salt_after = u8::try_from(before_sendme).unwrap_or(u8::MAX).min(SALT_AFTER);
        Self {
            flow,
            format,
            salt_after,
            salt_in: salt_after,
            is_blocked: false,
            // Half of the queue is left for cells other than data.
            high_cells: BlockedMark::HIGH_CELLS.min(queue_limit_cells / 2).max(1),
        }
    }

    /// The message format of the circuit's cells.
    #[must_use]
    pub const fn format(&self) -> RelayFormat {
        self.format
    }

    /// Maximum data length of one of its cells.
    const fn data_len_max(&self) -> usize {
        self.format.max_data_len(RelayCommand::DATA)
    }

    /// The sender's view of the queue when a SENDME arrives.
    #[must_use]
    pub fn path(&self, queued_cells: usize) -> PathState {
        let queued_cells = u32::try_from(queued_cells).unwrap_or(u32::MAX);
        PathState { is_link_blocked: self.is_blocked, queued_cells }
    }

    /// The state for a scheduler of several legs.
    #[must_use]
    pub fn state(&self) -> LegState {
        let FlowState { window_cells, in_flight_cells, rtt, last_rtt, is_in_slow_start } =
            self.flow.state();
        let is_blocked = self.is_blocked;
        LegState { rtt, last_rtt, window_cells, in_flight_cells, is_in_slow_start, is_blocked }
    }

    /// Bytes that may be read from a stream whose window has space for `stream_bytes`, with this queue length
    /// in cells. They fit into cells that may be sent.
    #[must_use]
    pub fn room_bytes(&self, queued_cells: usize, stream_bytes: u64) -> usize {
        if self.is_blocked {
            return 0;
        }
        let queue_cells = (self.high_cells as usize).saturating_sub(queued_cells);
        let stream_bytes = usize::try_from(stream_bytes).unwrap_or(usize::MAX);
        let stream_cells = stream_bytes.div_ceil(self.data_len_max());
        let flow_cells = self.flow.room_cells() as usize;
        // At most one of them has random bytes.
        let reading_cells = READING_CELLS.min(usize::from(self.salt_after) + 1);
        let cells = flow_cells.min(queue_cells).min(stream_cells).min(reading_cells);
        let is_salted = usize::from(self.salt_in) < cells;
        let salt_len = if is_salted { SALT_LEN } else { 0 };
        stream_bytes.min(cells * self.data_len_max() - salt_len)
    }

    /// The layout of the next cell for `available` bytes.
    #[must_use]
    pub const fn fill(&mut self, available: usize) -> Filling {
        let salted_most = self.data_len_max() - SALT_LEN;
        let most = if self.salt_in == 0 { salted_most } else { self.data_len_max() };
        let data_len = if available < most { available } else { most };
        if data_len <= salted_most {
            self.salt_in = self.salt_after;
            Filling { data_len, salt_at: Some(data_len + PADDING_GAP) }
        } else {
            self.salt_in -= 1;
            Filling { data_len, salt_at: None }
        }
    }

    /// Data was queued, and the queue has this length now. Returns the length at which the streams are to be
    /// woken, if they must wait for it.
    #[must_use]
    pub fn handle_packaged(&mut self, queued_cells: usize) -> Option<usize> {
        if queued_cells >= self.high_cells as usize {
            self.is_blocked = true;
        }
        self.is_blocked.then_some(BlockedMark::LOW_CELLS.min(self.high_cells / 2) as usize)
    }

    /// The queue to the link is short again. Returns true if streams have waited for that.
    #[must_use]
    pub const fn handle_unblocked(&mut self) -> bool {
        core::mem::replace(&mut self.is_blocked, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_DATA_LEN: usize = 498;

    fn leg() -> Leg {
        Leg::new(Flow::default(), RelayFormat::V0, 2500)
    }

    #[test]
    fn streams_are_not_read_while_the_queue_is_long() {
        let mut leg = leg();
        assert_eq!(leg.handle_packaged(255), None);
        assert_eq!(leg.room_bytes(255, u64::MAX), MAX_DATA_LEN);
        assert_eq!(leg.handle_packaged(256), Some(10));
        assert_eq!(leg.room_bytes(11, u64::MAX), 0);
        assert!(leg.handle_unblocked() && !leg.handle_unblocked());
        assert_eq!(leg.room_bytes(10, u64::MAX), 31 * MAX_DATA_LEN - 20, "one has random bytes");
    }

    proptest! {
        /// Data that may be read never needs more cells than may be sent.
        #[test]
        fn data_that_may_be_read_fits_into_the_cells_that_may_be_sent(
            is_v1: bool,
            steps in prop::collection::vec((0usize..300, 0u64..40_000, 1usize..16_000), 1..200),
        ) {
            let format = if is_v1 { RelayFormat::V1 } else { RelayFormat::V0 };
            let most_len = if is_v1 { 488 } else { MAX_DATA_LEN };
            let mut leg = Leg::new(Flow::default(), format, 2500);
            let mut since_salted = 0;
            for (queued, stream_bytes, wanted) in steps {
                let room = leg.room_bytes(queued, stream_bytes);
                prop_assert!(room as u64 <= stream_bytes);
                let most = (256usize.saturating_sub(queued)).min(31);
                let most = most.min(usize::try_from(stream_bytes.div_ceil(most_len as u64)).unwrap());
                let (mut left, mut cells) = (room.min(wanted), 0);
                while left > 0 {
                    let filling = leg.fill(left);
                    prop_assert!(filling.data_len > 0 && filling.data_len <= most_len);
                    left -= filling.data_len;
                    cells += 1;
                    since_salted += 1;
                    if let Some(at) = filling.salt_at {
                        prop_assert!(at >= filling.data_len + 4 && at + 16 <= most_len);
                        since_salted = 0;
                    }
                    prop_assert!(since_salted <= usize::from(SALT_AFTER));
                }
                prop_assert!(cells <= most, "{cells} cells, {most} allowed");
            }
        }
    }
}
