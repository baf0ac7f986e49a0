//! Health of the name servers: counted for metrics, and reported if all queries fail.

use crate::event::RelayEvent;
use onion::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// Consecutive failed queries before a report.
const UNANSWERED: u32 = 3;
/// The minimum interval between reports.
const REPORT_PAUSE: Duration = Duration::from_secs(600);

/// The outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// The name does not exist.
    NotExist,
    /// The name has no record of the requested type.
    NoData,
    /// The server could not answer, or the name's own servers do not.
    ServerFailed,
    Refused,
    NotImplemented,
    Format,
    Timeout,
    /// The server was not reached, or its answer is malformed.
    Unknown,
}

impl Outcome {
    /// All outcomes, with C tor's names for them (`tor_relay_exit_dns_error_total`).
    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::Success, "success"),
        (Self::NotExist, "notexist"),
        (Self::NoData, "nodata"),
        (Self::ServerFailed, "serverfailed"),
        (Self::Refused, "refused"),
        (Self::NotImplemented, "notimpl"),
        (Self::Format, "format"),
        (Self::Timeout, "tor_timeout"),
        (Self::Unknown, "unknown"),
    ];

    /// Whether a name server has answered, possibly that there is no such name.
    pub(super) const fn is_answer(self) -> bool {
        matches!(self, Self::Success | Self::NotExist | Self::NoData)
    }
}

/// Counters since the relay started.
#[derive(Debug)]
pub(crate) struct Health {
    counts: [AtomicU64; Outcome::ALL.len()],
    state: Mutex<State>,
    events: Sender<RelayEvent>,
}

#[derive(Debug, Default)]
struct State {
    unanswered: u32,
    is_reported: bool,
    reported: Option<Instant>,
}

impl Health {
    pub(crate) fn new(events: Sender<RelayEvent>) -> Self {
        Self { counts: Default::default(), state: Mutex::default(), events }
    }

    /// The number of queries with this outcome.
    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].load(Ordering::Relaxed)
    }

    /// The number of all queries.
    pub(crate) fn questions(&self) -> u64 {
        Outcome::ALL.iter().map(|(outcome, _)| self.count(*outcome)).sum()
    }

    /// Counts a completed query.
    pub(crate) fn note(&self, now: Instant, outcome: Outcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        // The lock guards code that cannot panic.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_answer() {
            state.unanswered = 0;
            if std::mem::take(&mut state.is_reported) {
                self.report("the name servers answer again".to_owned());
            }
            return;
        }
        state.unanswered = state.unanswered.saturating_add(1);
        let is_late = state.reported.is_none_or(|at| now >= at + REPORT_PAUSE);
        if state.unanswered >= UNANSWERED && is_late && !state.is_reported {
            (state.is_reported, state.reported) = (true, Some(now));
            let (_, name) = Outcome::ALL[outcome as usize];
            self.report(format!(
                "machine: no name server answers: the last {} questions of clients failed, the last one with `{name}`. Streams to names \
                 end with RESOLVEFAILED. Check /etc/resolv.conf, or `name_servers` in the section [exit]",
                state.unanswered
            ));
        }
    }

    fn report(&self, text: String) {
        let _nobody_listens = self.events.send(RelayEvent::Trouble(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn failing_servers_are_reported_once_until_they_answer() {
        let (events, reports_of) = mpsc::channel();
        let health = Health::new(events);
        let mut now = Instant::from_millis(5);
        let reports_of = move || -> Vec<String> {
            reports_of
                .try_iter()
                .map(|event| match event {
                    RelayEvent::Trouble(text) => text,
                    other => panic!("{other}"),
                })
                .collect()
        };
        health.note(now, Outcome::Timeout);
        health.note(now, Outcome::Refused);
        // "No such name" is an answer.
        health.note(now, Outcome::NotExist);
        assert!(reports_of().is_empty());
        for _ in 0..10 {
            health.note(now, Outcome::Refused);
        }
        let reports = reports_of();
        assert!(reports.len() == 1 && reports[0].contains("`refused`"), "{reports:?}");
        health.note(now, Outcome::Success);
        assert_eq!(reports_of(), ["the name servers answer again"]);
        // Intermittent failures are not reported each time.
        (0..10).for_each(|_| health.note(now, Outcome::Timeout));
        assert!(reports_of().is_empty());
        now += REPORT_PAUSE;
        health.note(now, Outcome::Timeout);
        assert_eq!(reports_of().len(), 1);
        assert_eq!((health.count(Outcome::Timeout), health.questions()), (12, 25));
    }

    #[test]
    fn each_outcome_has_its_place() {
        for (place, (outcome, _)) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, place);
        }
    }
}
