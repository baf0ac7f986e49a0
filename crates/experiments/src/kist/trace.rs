//! What clients and server of the experiment note for each other and for the judge.

use onion::Instant;
use onion::client::Figures;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has happened in one run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Clients whose circuits are open.
    pub(super) ready: u32,
    /// Whether bulk is to flow.
    pub(super) is_loaded: bool,
    /// What each client has received so far.
    pub(super) received_bytes: BTreeMap<u32, u64>,
    /// When answers left the server, by the seeds of their requests.
    pub(super) sent: BTreeMap<u64, Instant>,
    /// The requests, and how their answers arrived.
    pub(super) came: BTreeMap<u64, Figures>,
    pub(super) failure: Option<String>,
}

impl Trace {
    /// Seconds from each request asked in this time to the first cell of its answer.
    pub(super) fn first_cells_s(&self, from: Instant, to: Instant) -> Vec<f64> {
        let taken = self.came.values().filter_map(|figures| {
            // The request goes out when the stream stands.
            let asked_at = figures.connected_at.filter(|at| (from..to).contains(at))?;
            Some((figures.first_byte_at? - asked_at).as_secs_f64())
        });
        taken.collect()
    }

    /// Seconds from server to client of the first and of the last cell of each answer that was sent in
    /// this time.
    pub(super) fn passages_s(&self, from: Instant, to: Instant) -> Vec<f64> {
        let sent = self.sent.iter().filter(|(_, at)| (from..to).contains(*at));
        let came = sent.filter_map(|(seed, at)| Some((at, self.came.get(seed)?)));
        let passages = came.flat_map(|(sent_at, figures)| {
            let arrived = figures.first_byte_at.into_iter().chain([figures.last_at]);
            arrived.map(|at| (at - *sent_at).as_secs_f64())
        });
        passages.collect()
    }
}

/// The trace, for all threads of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTrace(Arc<Mutex<Trace>>);

impl SharedTrace {
    pub(super) fn lock(&self) -> MutexGuard<'_, Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run has come to nothing; the first reason counts.
    pub(super) fn fail(&self, problem: impl ToString) {
        self.lock().failure.get_or_insert_with(|| problem.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    }

    fn trace() -> Trace {
        let came = |asked, first, last| Figures {
            connected_at: Some(at(asked)),
            first_byte_at: Some(at(first)),
            last_at: at(last),
            ..Figures::default()
        };
        Trace {
            sent: [(1, at(1)), (2, at(101)), (3, at(201))].into(),
            came: [(1, came(0, 11, 21)), (2, came(100, 151, 171))].into(),
            ..Trace::default()
        }
    }

    #[test]
    fn each_answer_is_compared_with_when_it_was_sent() {
        near(&trace().passages_s(at(0), at(50)), &[0.010, 0.020]);
        near(&trace().passages_s(at(50), at(300)), &[0.050, 0.070]);
    }

    #[test]
    fn the_first_cell_of_an_answer_is_timed_from_its_request() {
        near(&trace().first_cells_s(at(0), at(50)), &[0.011]);
        near(&trace().first_cells_s(at(50), at(300)), &[0.051]);
    }
}
