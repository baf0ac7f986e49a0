//! Merges the reports of one measurer's pumps in one round.

use super::worker::Report;
use crate::member::{FailureKind, MemberReport, Reports};
use coordinator::WorkerLoad;
use coordinator::{Account, ends_accepted_measurement};
use onion::measure::Second;
use onion::measure::load::{Event, LoadFailure};
use onion::measure::protocol::ErrorCode;
use std::collections::BTreeMap;

/// Share of its circuits that a measurer must keep to the end. Whether a result is conclusive is computed from the
/// assigned load: with much less of it, a low number could look conclusive.
const LOAD_KEPT_MIN: f64 = 0.75;

/// The sums over a measurer's pumps.
pub(super) struct Sums {
    reports: Reports,
    pumps: usize,
    /// Sockets of the pumps that are ready.
    ready: BTreeMap<usize, u32>,
    /// Original and remaining circuits, by pump that has lost some.
    lost: BTreeMap<usize, (u32, u32)>,
    circuits: u32,
    /// The pumps that have reported it, and the sums, by second. There is an account as long as all have one.
    seconds: BTreeMap<u32, (usize, Second, Option<Account>)>,
    loads: Vec<WorkerLoad>,
    has_started: bool,
    is_over: bool,
}

impl Sums {
    pub(super) fn new(pumps: usize, reports: Reports) -> Self {
        Self {
            reports,
            pumps,
            ready: BTreeMap::new(),
            lost: BTreeMap::new(),
            circuits: 0,
            seconds: BTreeMap::new(),
            loads: Vec::new(),
            has_started: false,
            is_over: false,
        }
    }

    /// The coordinator has ordered the start.
    pub(super) const fn start(&mut self) {
        self.has_started = true;
    }

    /// Whether all pumps are ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.len() == self.pumps && !self.is_over
    }

    /// Handles a pump's report, and reports the result for the whole measurer.
    pub(super) fn handle_report(&mut self, pump: usize, report: Report) {
        if self.is_over {
            return; // already failed
        }
        match report {
            Report::Event(Event::Ready { sockets, circuits }) => {
                self.ready.insert(pump, sockets);
                self.circuits += circuits;
                if self.is_ready() {
                    let sockets = self.ready.values().sum();
                    self.notify(MemberReport::Ready { sockets });
                }
            }
            Report::Event(Event::Lost { circuits, of, problem, lacks_room }) => {
                self.lost.insert(pump, (of, circuits));
                let kind = if lacks_room { FailureKind::NoRoom } else { FailureKind::Closed };
                self.judge_loss(kind, &problem);
            }
            Report::Event(Event::Second(second)) => self.add_second(second, None),
            Report::Second(second, account) => self.add_second(second, account),
            Report::Event(Event::Finished) => {}
            Report::Event(Event::Failed(failure)) => {
                let kind = kind_of(&failure, self.has_started);
                self.fail(kind, describe(&failure));
            }
            Report::StalledRelay(failure) => self.fail(FailureKind::Stalled, describe(&failure)),
            Report::Load(load) => {
                self.loads.push(load);
                if self.loads.len() == self.pumps {
                    let load =
                        self.loads.iter().fold(WorkerLoad::default(), |sum, load| sum.and(load));
                    self.notify(MemberReport::Load(load));
                }
            }
            Report::Broken(detail) => self.fail(FailureKind::Broken, detail),
        }
    }

    fn add_second(&mut self, second: Second, account: Option<Account>) {
        let empty = Second { index: second.index, ..Second::default() };
        let entry = self.seconds.entry(second.index);
        let (count, sum, joint) = entry.or_insert((0, empty, Some(Account::default())));
        *count += 1;
        sum.bytes += second.bytes;
        sum.checked_cells += second.checked_cells;
        *joint = joint.zip(account).map(|(joint, account)| joint.combined(&account));
        let (count, sum, joint) = (*count, *sum, *joint);
        if count == self.pumps {
            self.seconds.remove(&second.index);
            self.notify(MemberReport::Second(sum, joint.map(Box::new)));
        }
    }

    fn judge_loss(&mut self, kind: FailureKind, problem: &str) {
        // Before all are ready, the pump itself decides whether it has enough.
        if !self.is_ready() {
            return;
        }
        let lost: u32 = self.lost.values().map(|(of, left)| of - left).sum();
        let (left, of) = (self.circuits.saturating_sub(lost), self.circuits);
        if f64::from(left) < LOAD_KEPT_MIN * f64::from(of) {
            let detail = format!("{left} of a measurer's {of} circuits are left: {problem}");
            self.fail(kind, detail);
        }
    }

    fn fail(&mut self, kind: FailureKind, detail: String) {
        self.is_over = true;
        self.notify(MemberReport::Failed { kind, detail });
    }

    fn notify(&self, report: MemberReport) {
        (self.reports)(report);
    }
}

/// The description of a failure, without the party to blame, which its kind names.
fn describe(failure: &LoadFailure) -> String {
    match failure {
        LoadFailure::Stalled { silent_ms } => {
            format!("no cell for {silent_ms} ms with cells in flight")
        }
        other => other.to_string(),
    }
}

fn kind_of(failure: &LoadFailure, has_started: bool) -> FailureKind {
    match failure {
        LoadFailure::TooFewOpen { .. } if has_started => FailureKind::Closed,
        LoadFailure::TooFewOpen { .. } | LoadFailure::SetUpTimedOut { .. } => {
            FailureKind::Unreachable
        }
        LoadFailure::NotValidNow { .. } => FailureKind::NotValidNow,
        LoadFailure::NoRoom { .. } => FailureKind::NoRoom,
        LoadFailure::Unsolicited { .. } => FailureKind::BrokeProtocol,
        LoadFailure::Stalled { .. } => FailureKind::Silent,
        LoadFailure::Refused { code: ErrorCode::NO_TRAFFIC, .. } => FailureKind::NothingReceived,
        LoadFailure::CheckFailed { .. } | LoadFailure::AnsweredEarly { .. } => {
            FailureKind::WrongContent
        }
        LoadFailure::Refused { code, .. } if ends_accepted_measurement(*code) => {
            FailureKind::Closed
        }
        LoadFailure::Refused { .. } => FailureKind::Refused,
    }
}

#[cfg(test)]
mod tests;
