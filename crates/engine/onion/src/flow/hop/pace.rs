//! The pace of the next hop.

use crate::time::{Duration, Instant};

/// Minimum number of cells of a half stretch.
const HALF_CELLS: u32 = 3;

/// Maximum ratio of the paces of the two halves.
const UNEVEN_MAX: f64 = 1.3;

/// Cells must be sent this many times as fast as they are forwarded; otherwise the sender may be the slower
/// one.
const SENT_FASTER: f64 = 1.5;

/// A cell of a train when it was forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Its number among the forwarded cells of its train, counting itself.
    pub(super) passed: u32,
    pub(super) passed_at: Instant,
    pub(super) sent_at: Instant,
}

impl Mark {
    /// Seconds per cell since that one.
    pub(super) fn spacing_s(&self, since: &Self) -> f64 {
        let cells = (self.passed - since.passed).max(1);
        (self.passed_at - since.passed_at).as_secs_f64() / f64::from(cells)
    }
}

/// The recent pace at which the next hop forwards cells, as long as it is even: two consecutive stretches with
/// equal spacing.
///
/// A hop that has just found its own window forwards a window of cells at once, then none for a while, and
/// then as many as its bottleneck passes. The average over all of that is meaningless.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    begin: Option<Mark>,
    middle: Option<Mark>,
}

impl Pace {
    /// No cells yet.
    pub(super) const fn new() -> Self {
        Self { begin: None, middle: None }
    }

    /// Another cell was forwarded. Returns seconds per cell if it ends a stretch of two halves, each of at
    /// least this duration, that agree and whose cells were sent faster than that.
    pub(super) fn handle_passed(&mut self, cell: Mark, half: Duration) -> Option<f64> {
        let middle = *self.middle.get_or_insert(cell);
        if cell.passed_at - middle.passed_at < half || cell.passed - middle.passed < HALF_CELLS {
            return None;
        }
        let begin = self.begin.replace(middle);
        self.middle = Some(cell);
        let begin = begin?;
        let (one, other) = (middle.spacing_s(&begin), cell.spacing_s(&middle));
        let passed_s = (cell.passed_at - begin.passed_at).as_secs_f64();
        let sent_s = (cell.sent_at - begin.sent_at).as_secs_f64();
        let is_even = one.max(other) <= UNEVEN_MAX * one.min(other);
        (is_even && sent_s * SENT_FASTER <= passed_s).then(|| cell.spacing_s(&begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const HALF: Duration = Duration::from_millis(5);

    /// The result for cells that are forwarded at these times in milliseconds and sent this many times as fast.
    fn paces(passed_ms: impl IntoIterator<Item = u64>, faster: u64) -> Vec<f64> {
        let mut pace = Pace::new();
        let marks = (1..).zip(passed_ms).map(|(passed, ms)| Mark {
            passed,
            passed_at: Instant::from_millis(1_000 + ms),
            sent_at: Instant::from_millis(900 + ms / faster),
        });
        marks.filter_map(|mark| pace.handle_passed(mark, HALF)).collect()
    }

    #[test]
    fn evenly_forwarded_cells_have_a_pace() {
        let found = paces((0..30).map(|cell| cell * 2), 1_000);
        assert!(
            found.len() > 3 && found.iter().all(|pace| (pace - 0.002).abs() < 1e-9),
            "{found:?}"
        );
    }

    #[test]
    fn few_cells_or_a_short_time_have_no_pace() {
        assert_eq!(paces([0, 4, 8, 12], 1_000), []);
        assert_eq!(paces([0, 1, 2, 3, 4, 4, 5, 5, 6], 1_000), []);
    }

    #[test]
    fn a_burst_and_its_successors_have_no_common_pace() {
        let burst = [0; 20].into_iter().chain((0..4).map(|cell| 20 + cell * 2));
        assert_eq!(paces(burst, 1_000), []);
    }

    #[test]
    fn cells_sent_at_the_forwarding_rate_have_no_pace() {
        assert_eq!(paces((0..30).map(|cell| cell * 2), 1), []);
        assert!(!paces((0..30).map(|cell| cell * 2), 2).is_empty());
    }
}
