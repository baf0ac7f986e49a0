//! The age of queues, without a timestamp for each cell.

use crate::time::Instant;

/// The age of the oldest entry of a queue, tracked by one timestamp for the whole queue instead of one for each
/// entry.
///
/// It stores the length of the queue at one moment. When that many entries have left, all remaining ones have
/// arrived since, and the moment is advanced. So no entry is reported as older than it is. The age is exact for
/// a queue that nothing leaves; otherwise the error is at most the time in which the queue is emptied once.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueAge {
    since: Instant,
    /// Remaining entries of those that were queued at that moment.
    left: u32,
}

impl Default for QueueAge {
    fn default() -> Self {
        Self { since: Instant::ORIGIN, left: 0 }
    }
}

impl QueueAge {
    /// Entries were added.
    #[inline]
    pub(super) fn handle_added(&mut self, now: Instant, count: usize) {
        if self.left == 0 {
            *self = Self { since: now, left: number(count) };
        }
    }

    /// Entries have left from the front; `remaining` are left.
    #[inline]
    pub(super) fn handle_taken(&mut self, now: Instant, count: usize, remaining: usize) {
        self.left = self.left.saturating_sub(number(count));
        if self.left == 0 && count > 0 {
            *self = Self { since: now, left: number(remaining) };
        }
    }

    /// The entries added last were removed again; `remaining` are left.
    pub(super) fn handle_taken_back(&mut self, remaining: usize) {
        self.left = self.left.min(number(remaining));
    }

    /// When an entry was added or left last, as far as known; not later than the arrival of the oldest entry.
    pub(super) const fn moved_at(&self) -> Instant {
        self.since
    }

    /// Since when the oldest entry has been queued, as far as known; `None` for an empty queue.
    pub(super) fn since(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.since)
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ages_are_never_overestimated_and_exact_for_a_stalled_queue(
            steps in prop::collection::vec((0u64..1000, 0usize..6, 0usize..6), 1..300),
        ) {
            let mut age = QueueAge::default();
            let (mut queue, mut now_ms): (VecDeque<u64>, u64) = (VecDeque::new(), 0);
            // When the queue was emptied last.
            let mut moved: Vec<u64> = Vec::new();
            for (passed_ms, add, take) in steps {
                now_ms += passed_ms;
                let now = Instant::from_millis(now_ms);
                if add > 0 {
                    queue.extend(core::iter::repeat_n(now_ms, add));
                    age.handle_added(now, add);
                }
                let taken = take.min(queue.len());
                queue.drain(..taken);
                if taken > 0 {
                    moved.push(now_ms);
                    age.handle_taken(now, taken, queue.len());
                }
                let Some(front) = queue.front() else {
                    prop_assert_eq!(age.since(), None);
                    continue;
                };
                let since = age.since().expect("something waits");
                prop_assert!(since >= Instant::from_millis(*front));
                if moved.iter().all(|at| at < front) {
                    prop_assert_eq!(since, Instant::from_millis(*front));
                }
            }
        }
    }

    #[test]
    fn removed_entries_have_no_age() {
        let mut age = QueueAge::default();
        age.handle_added(Instant::from_millis(5), 1);
        age.handle_taken_back(0);
        assert_eq!(age.since(), None);
        age.handle_added(Instant::from_millis(9), 1);
        assert_eq!(age.since(), Some(Instant::from_millis(9)));
    }
}
