//! The send times of cells in flight.

use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// Maximum number of send times. A peer that reports many cells and then none must not make us keep one for
/// each cell.
pub(super) const TIMES_MAX: usize = 64;

/// At this number, the whole time span is divided into this number of parts.
const PARTS: u32 = 32;

/// Cells in flight to the next hop, in FIFO order.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Send time and number of cells.
    sent: VecDeque<Sent>,
    cells: u32,
    /// Cells sent within this time count as sent together.
    step: Duration,
}

pub(super) type Sent = (Instant, u32);

impl Flight {
    pub(super) const fn cells(&self) -> u32 {
        self.cells
    }

    pub(super) fn handle_sent(&mut self, now: Instant, cells: u32) {
        if cells == 0 {
            return;
        }
        self.cells += cells;
        self.thin_out();
        match self.sent.back_mut() {
            Some((at, count)) if now - *at <= self.step => *count += cells,
            _ => self.sent.push_back((now, cells)),
        }
    }

    /// The first cell was forwarded: returns when it was sent. `None` if none is in flight, whatever the peer
    /// reports.
    pub(super) fn handle_passed(&mut self) -> Option<Instant> {
        let (at, count) = self.sent.front_mut()?;
        let sent_at = *at;
        *count -= 1;
        if *count == 0 {
            self.sent.pop_front();
        }
        self.cells -= 1;
        if self.cells == 0 {
            self.step = Duration::ZERO;
        }
        Some(sent_at)
    }

    /// Makes space for another send time: cells sent within the same part of the whole time span count as sent
    /// with the first of them.
    ///
    /// The first one's round-trip time stays exact, and only the minimum of a round counts. All parts have the
    /// same length: if instead the nearest times were merged, those of the first cells would be merged again
    /// and again.
    fn thin_out(&mut self) {
        if self.sent.len() < TIMES_MAX {
            return;
        }
        let ends = self.sent.front().zip(self.sent.back());
        let whole = ends.map_or(Duration::ZERO, |((first, _), (last, _))| *last - *first);
        self.step = whole / PARTS;
        let (mut kept, mut last) = (0, Instant::ORIGIN);
        for place in 0..self.sent.len() {
            let (at, count) = self.sent[place];
            if kept > 0 && at - last <= self.step {
                self.sent[kept - 1].1 += count;
            } else {
                self.sent[kept] = (at, count);
                (kept, last) = (kept + 1, at);
            }
        }
        self.sent.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// No cell is lost, few times are kept, and none is off by more than two parts of the whole time span:
        /// merged cells may be merged once more, but by then the span has doubled.
        #[test]
        fn few_send_times_are_kept_and_their_error_is_small(
            gaps in prop::collection::vec((0u64..5_000_000, 1u32..4), 1..1_500),
        ) {
            let (mut flight, mut now, mut truth) = (Flight::default(), Instant::ORIGIN, Vec::new());
            for (gap_ns, cells) in gaps {
                now += Duration::from_nanos(gap_ns);
                flight.handle_sent(now, cells);
                truth.extend((0..cells).map(|_| now));
                prop_assert!(flight.sent.len() <= TIMES_MAX && flight.sent.capacity() <= TIMES_MAX);
            }
            let whole = now - truth[0];
            prop_assert_eq!(flight.cells() as usize, truth.len());
            for sent in truth {
                let kept = flight.handle_passed().expect("it was sent");
                prop_assert!(kept <= sent, "a round trip that seems shorter than it is");
                prop_assert!(sent - kept <= 2 * whole / PARTS + Duration::from_nanos(9));
            }
            prop_assert_eq!(flight.handle_passed(), None);
            prop_assert_eq!(flight.cells(), 0);
        }
    }

    #[test]
    fn few_cells_in_flight_have_exact_send_times() {
        let mut flight = Flight::default();
        let at = |number: usize| Instant::from_nanos(number as u64);
        (0..TIMES_MAX).for_each(|number| flight.handle_sent(at(number), 1));
        (0..TIMES_MAX).for_each(|number| assert_eq!(flight.handle_passed(), Some(at(number))));
    }
}
