//! The events of a run, recorded by clients and server.

use onion::Instant;
use onion::client::Figures;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The events of a run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Clients whose circuits are open.
    pub(super) ready: u32,
    /// Whether bulk transfers are to start.
    pub(super) is_loaded: bool,
    /// The bytes that each client has received.
    pub(super) received_bytes: BTreeMap<u32, u64>,
    /// When each answer left the server, by the seed of its request.
    pub(super) sent: BTreeMap<u64, Instant>,
    /// The figures of each request and its answer, by seed.
    pub(super) answers: BTreeMap<u64, Figures>,
    pub(super) failure: Option<String>,
}

impl Trace {
    /// Seconds from each request in this period to the first cell of its answer.
    pub(super) fn first_cells_s(&self, period: &Range<Instant>) -> Vec<f64> {
        let times = self.answers.values().filter_map(|figures| {
            // The request is sent when the stream is open.
            let requested_at = figures.connected_at.filter(|at| period.contains(at))?;
            Some((figures.first_byte_at? - requested_at).as_secs_f64())
        });
        times.collect()
    }

    /// Seconds from server to client of the first and of the last cell of each answer that was sent in
    /// this period.
    pub(super) fn passages_s(&self, period: &Range<Instant>) -> Vec<f64> {
        let sent = self.sent.iter().filter(|(_, at)| period.contains(*at));
        let answers = sent.filter_map(|(seed, at)| Some((at, self.answers.get(seed)?)));
        let passages = answers.flat_map(|(sent_at, figures)| {
            let arrivals = figures.first_byte_at.into_iter().chain([figures.last_at]);
            arrivals.map(|at| (at - *sent_at).as_secs_f64())
        });
        passages.collect()
    }
}

/// A trace shared by all threads of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTrace(Arc<Mutex<Trace>>);

impl SharedTrace {
    pub(super) fn lock(&self) -> MutexGuard<'_, Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the run has failed; only the first reason is kept.
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
        let answer = |requested, first, last| Figures {
            connected_at: Some(at(requested)),
            first_byte_at: Some(at(first)),
            last_at: at(last),
            ..Figures::default()
        };
        Trace {
            sent: [(1, at(1)), (2, at(101)), (3, at(201))].into(),
            answers: [(1, answer(0, 11, 21)), (2, answer(100, 151, 171))].into(),
            ..Trace::default()
        }
    }

    #[test]
    fn passages_are_timed_from_when_the_server_sent_the_answer() {
        near(&trace().passages_s(&(at(0)..at(50))), &[0.010, 0.020]);
        near(&trace().passages_s(&(at(50)..at(300))), &[0.050, 0.070]);
    }

    #[test]
    fn first_cells_are_timed_from_the_request() {
        near(&trace().first_cells_s(&(at(0)..at(50))), &[0.011]);
        near(&trace().first_cells_s(&(at(50)..at(300))), &[0.051]);
    }
}
