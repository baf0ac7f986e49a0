//! What clients and servers of the experiment note for each other and for the judge.

use onion::Instant;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One circuit that asks now and then, and gets some cells each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Quiet {
    /// When its requests were sent, and how many cells had been asked for before.
    pub(super) asked: Vec<(Instant, usize)>,
    /// When the server sent each cell.
    pub(super) sent: Vec<Instant>,
    /// When each cell arrived. Nothing is lost on a circuit, so that the *n*th that came is the *n*th
    /// that was sent.
    pub(super) arrived: Vec<Instant>,
}

/// What has happened in one run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Circuits by the key under which the server gets to know them.
    pub(super) known: BTreeMap<[u8; 32], Kind>,
    pub(super) quiet: Vec<Quiet>,
    /// Cells that had arrived on all circuits by then.
    pub(super) cells: Vec<(Instant, u64)>,
    pub(super) is_ready: bool,
    pub(super) failure: Option<String>,
}

/// What a circuit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As many cells as its window lets pass, for ever.
    Bulk,
    /// Few, now and then: by its number.
    Quiet(usize),
}

/// The trace, for all threads of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Trace>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quiet {
    /// Seconds from each request asked in this time to the first cell of its answer.
    pub(super) fn first_cells_s(&self, from: Instant, to: Instant) -> Vec<f64> {
        let asked = self.asked.iter().filter(|(at, _)| (from..to).contains(at));
        let taken =
            asked.filter_map(|(at, first)| Some((*self.arrived.get(*first)? - *at).as_secs_f64()));
        taken.collect()
    }

    /// Seconds from server to client of each cell that was sent in this time.
    pub(super) fn passages_s(&self, from: Instant, to: Instant) -> Vec<f64> {
        let pairs = self.sent.iter().zip(&self.arrived);
        let pairs = pairs.filter(|(sent, _)| (from..to).contains(sent));
        pairs.map(|(sent, arrived)| (*arrived - *sent).as_secs_f64()).collect()
    }
}

impl Trace {
    /// Cells per second that arrived in this time.
    pub(super) fn cells_per_s(&self, from: Instant, to: Instant) -> f64 {
        let by = |at: Instant| {
            let next = self.cells.partition_point(|(noted, _)| *noted <= at);
            next.checked_sub(1).map_or(0, |place| self.cells[place].1)
        };
        #[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 cells")]
        let cells = (by(to) - by(from)) as f64;
        cells / (to - from).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_compared_with_the_one_that_was_sent() {
        let at = |ms| Instant::from_millis(ms);
        let quiet = Quiet {
            asked: vec![(at(0), 0), (at(100), 2), (at(200), 4)],
            sent: vec![at(1), at(1), at(101), at(102), at(201)],
            arrived: vec![at(11), at(21), at(151), at(172)],
        };
        let near = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        };
        near(quiet.first_cells_s(at(50), at(300)), &[0.051]);
        near(quiet.first_cells_s(at(0), at(50)), &[0.011]);
        near(quiet.passages_s(at(50), at(300)), &[0.050, 0.070]);
    }

    #[test]
    fn cells_are_counted_between_two_instants() {
        let at = |ms| Instant::from_millis(ms);
        let cells = vec![(at(1000), 10), (at(2000), 30), (at(4000), 100)];
        let trace = Trace { cells, ..Trace::default() };
        assert!((trace.cells_per_s(at(1000), at(4000)) - 30.0).abs() < 1e-9);
        assert!((trace.cells_per_s(at(0), at(1500)) - 10.0 / 1.5).abs() < 1e-9);
    }
}
