use crate::time::{Duration, Instant};

/// The arrivals in one second of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Second {
    /// Its index.
    pub index: u32,
    /// Bytes of returned cells, 514 for each.
    pub bytes: u64,
    /// Cells whose content was checked.
    pub checked_cells: u64,
}

/// Counts arrivals in seconds that begin at a common instant, over any number of connections.
#[derive(Clone, Debug)]
pub struct SecondCounter {
    start: Instant,
    seconds: u32,
    current: Second,
}

impl SecondCounter {
    /// Counts `seconds` seconds from `start`.
    #[must_use]
    pub const fn new(start: Instant, seconds: u32) -> Self {
        Self { start, seconds, current: Second { index: 0, bytes: 0, checked_cells: 0 } }
    }

    /// Whether the last second has ended and was reported.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.current.index >= self.seconds
    }

    /// When the current second ends.
    #[must_use]
    pub fn current_ends_at(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.current.index) + 1)
    }

    /// Adds arrivals to the current second. Call [`poll_second`](Self::poll_second) before, or they are counted
    /// for a second that has ended.
    #[inline]
    pub const fn add(&mut self, bytes: u64) {
        self.current.bytes += bytes;
    }

    /// Adds one checked cell to the current second.
    pub const fn add_check(&mut self) {
        self.current.checked_cells += 1;
    }

    /// The next second that has ended, each once, including empty ones.
    #[must_use]
    pub fn poll_second(&mut self, now: Instant) -> Option<Second> {
        if self.is_over() || now < self.current_ends_at() {
            return None;
        }
        let finished = self.current;
        self.current = Second { index: finished.index + 1, bytes: 0, checked_cells: 0 };
        Some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn seconds_without_cells_are_reported_as_zero() {
        let mut counter = SecondCounter::new(Instant::from_millis(500), 4);
        counter.add(514);
        assert_eq!(counter.poll_second(Instant::from_millis(1499)), None);
        let late = Instant::from_millis(3600);
        let seconds: Vec<_> =
            core::iter::from_fn(|| counter.poll_second(late)).map(|s| (s.index, s.bytes)).collect();
        assert_eq!(seconds, [(0, 514), (1, 0), (2, 0)]);
        counter.add(1);
        let last = counter.poll_second(Instant::from_millis(4500)).expect("over");
        assert_eq!((last.index, last.bytes), (3, 1));
        assert!(counter.is_over());
        assert_eq!(counter.poll_second(Instant::from_millis(9000)), None);
    }
}
