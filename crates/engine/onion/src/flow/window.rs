//! The measurer's window on one circuit.

use crate::time::{Duration, Instant};

/// The initial window, before anything is known of the path.
const START_CELLS: u32 = 64;

/// The minimum window: below it, a slow path could not be distinguished from a dead one.
const FLOOR_CELLS: u32 = 16;

/// The standing queue at the bottleneck that the window aims for.
///
/// A relay with a rate limit sends in bursts as its buckets are refilled, every tenth of a second by default;
/// its queue must never run empty.
const STANDING_QUEUE: Duration = Duration::from_millis(250);

/// A limit on the cells in flight on one circuit, for a path without end-to-end windows.
///
/// A relay destroys a circuit whose queue exceeds the consensus parameter `circ_max_cell_queue_size`, so the
/// window has a cap strictly below that. Under the cap it follows the path: in each round (until a marked cell
/// arrives) it measures the delivery rate, and allows as many cells as that rate carries in the shortest
/// round-trip time plus a quarter of a second. It at most doubles in a round, and shrinks slowly.
#[derive(Clone, Debug)]
pub struct InFlightWindow {
    cap_cells: u32,
    limit_cells: u32,
    sent_cells: u64,
    delivered_cells: u64,
    round: Option<Round>,
    rtt_min: Option<Duration>,
}

/// From the sending of a marked cell to its arrival.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The marked cell: the number of cells sent, including it.
    mark_cells: u64,
    began: Instant,
    delivered_before_cells: u64,
    /// Whether the window, and not the sender, was the limit.
    was_limiting: bool,
}

impl InFlightWindow {
    /// A window that never exceeds `cap_cells`.
    #[must_use]
    pub fn new(cap_cells: u32) -> Self {
        Self {
            cap_cells,
            limit_cells: START_CELLS.min(cap_cells),
            sent_cells: 0,
            delivered_cells: 0,
            round: None,
            rtt_min: None,
        }
    }

    /// Cells sent in all.
    #[must_use]
    pub const fn sent_cells(&self) -> u64 {
        self.sent_cells
    }

    /// Cells delivered in all.
    #[must_use]
    pub const fn delivered_cells(&self) -> u64 {
        self.delivered_cells
    }

    /// The current window.
    #[must_use]
    pub const fn limit_cells(&self) -> u32 {
        self.limit_cells
    }

    /// The shortest round-trip time so far.
    #[must_use]
    pub const fn rtt_min(&self) -> Option<Duration> {
        self.rtt_min
    }

    /// Cells that may be sent now.
    #[must_use]
    pub fn room_cells(&self) -> u32 {
        let in_flight = self.sent_cells - self.delivered_cells;
        self.limit_cells.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX))
    }

    /// The space below which a write is not worthwhile: four full records, or a quarter of a small window.
    #[must_use]
    pub fn batch_cells(&self) -> u32 {
        (self.limit_cells / 4).clamp(1, 4 * 31)
    }

    /// Handles that `count` cells were sent.
    pub fn handle_sent(&mut self, now: Instant, count: u32) {
        self.sent_cells += u64::from(count);
        let is_full = self.room_cells() == 0;
        let round = self.round.get_or_insert(Round {
            mark_cells: self.sent_cells,
            began: now,
            delivered_before_cells: self.delivered_cells,
            was_limiting: false,
        });
        round.was_limiting |= is_full;
    }

    /// Handles the arrival of one cell. The caller ensures that only sent cells arrive.
    #[inline]
    pub fn handle_delivered(&mut self, now: Instant) {
        debug_assert!(self.delivered_cells < self.sent_cells);
        self.delivered_cells += 1;
        if let Some(round) = self.round
            && self.delivered_cells >= round.mark_cells
        {
            self.finish_round(now, round);
        }
    }

    fn finish_round(&mut self, now: Instant, round: Round) {
        self.round = None;
        let rtt = (now - round.began).max(Duration::from_micros(1));
        let rtt_min = self.rtt_min.map_or(rtt, |known| known.min(rtt));
        self.rtt_min = Some(rtt_min);
        let delivered = self.delivered_cells - round.delivered_before_cells;
        let hold = (rtt_min + STANDING_QUEUE).as_nanos();
        let target = u128::from(delivered) * hold / rtt.as_nanos();
        let target = u32::try_from(target).unwrap_or(u32::MAX);
        let limit = if target > self.limit_cells {
            if round.was_limiting { target.min(self.limit_cells * 2) } else { self.limit_cells }
        } else {
            target.max(self.limit_cells - self.limit_cells / 8)
        };
        let floor = FLOOR_CELLS.min(self.cap_cells);
        self.limit_cells = limit.clamp(floor, self.cap_cells);
    }
}

#[cfg(test)]
mod tests;
