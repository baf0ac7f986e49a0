//! The measurement of one relay by a team, from the first guess to the outcome (§4.1, §4.2).

use crate::account::BUSY_MAX;
use crate::allocation::{Allocation, Assignment, MeasurerId};
use crate::bottleneck::MeasurerBottleneck;
use crate::campaign::Launch;
use crate::failure::{Blame, Failure, Violation};
use crate::measurer_path::MeasurerPath;
use crate::mode::Mode;
use crate::outcome::{Estimate, Inconclusive, Outcome};
use crate::params::{Params, ParamsError};
use crate::record::{RoundHistory, RoundRecord};
use crate::second::{SecondReport, SecondTotals};
use crate::series::{Missing, Series, Source, Summary};
use crate::turn::Attempt;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use onion::{Duration, Instant, Rate};

/// An action for the shell.
#[expect(clippy::large_enum_variant, reason = "a measurement has one at a time")]
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Order each of these measurers to open its sockets and circuits to the relay without sending yet. Pass its answer
    /// to [`Measurement::handle_ready`].
    Prepare {
        /// Counted from one.
        round: u32,
        /// The measurers, with their rates and numbers of sockets.
        assignments: Vec<Assignment>,
        /// The duration of the round: *t*, and the seconds before those that count.
        seconds: u32,
        /// The second in which every other socket starts; `None` if all start at once.
        held_back_s: Option<u32>,
        /// The first seconds, in which only the circuits that carry the load send.
        few_circuits_s: u32,
        /// *p*: the share of the cells whose content is checked.
        check_share: f64,
    },
    /// Start all measurers of the round at once, at their assigned rates.
    Start {
        /// The round.
        round: u32,
    },
    /// Stop all measurers of the round, and close their circuits.
    Stop {
        /// The round.
        round: u32,
    },
    /// The measurement is over; no action follows.
    Done(Outcome),
}

/// The reason why a measurement cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A parameter is out of range.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// The first guess is zero.
    #[error("the first guess is zero, which doubling cannot increase")]
    NoGuess,
    /// The team has no measurer with capacity left.
    #[error("no measurer has any capacity left")]
    NoCapacity,
}

/// The measurement of one relay: rounds of growing load until the answer is conclusive.
///
/// A state machine without sockets or clock. Its methods are
///
/// - getters: cheap, change nothing;
/// - `handle_*`: something arrived, or time passed;
/// - commands: [`cancel`](Self::cancel);
/// - `poll_*`: what to do now.
///
/// After `new`, and after each command and `handle_*` call: call [`poll_action`](Self::poll_action) until it returns
/// `None` and perform the actions in order; then arm a timer for [`poll_timeout`](Self::poll_timeout), replacing the
/// earlier one. When it fires, first deliver the reports that have arrived by then, then call
/// [`handle_timeout`](Self::handle_timeout): a late report that is delivered before the timeout counts. `now` must never
/// decrease from one call to the next. A round starts at the `now` of the call that made the last measurer ready, so do
/// not delay [`Action::Start`].
///
/// Until [`Action::Done`] there is always a timeout, so a measurement ends even if no answer arrives. Input after that,
/// or from an earlier round, is ignored. An invalid report ([`Violation`]) ends the measurement as a failure, since a
/// measurer that miscounts cannot be trusted with the rest.
#[derive(Clone, Debug)]
pub struct Measurement {
    params: Params,
    mode: Mode,
    /// The capacity that each member of the team has left for this relay.
    residuals: Vec<Rate>,
    /// The path of each member to the relay, from earlier rounds.
    vantages: Vec<MeasurerPath>,
    /// The current or last round.
    turn: Attempt,
    scope: Scope,
    allocation: Allocation,
    /// Open sockets by place in the allocation; `None` until ready.
    open: Vec<Option<u32>>,
    /// Measurers that could not reach the relay in this round, with their answers, until a report shows whether others
    /// can.
    unreached: Vec<(MeasurerId, String)>,
    /// Measurers without spare processor time in this round.
    saturated: Vec<MeasurerId>,
    /// Measurers that were held back by a cause of their own in this round, once it is complete.
    bottlenecks: Vec<MeasurerBottleneck>,
    /// The additional time for the relay's report on its clients, in this round.
    patience: Duration,
    phase: Phase,
    /// The previous rounds, and at the end all.
    over: Vec<RoundRecord>,
    /// The result of the previous round, if any.
    before: Option<Estimate>,
    actions: VecDeque<Action>,
}

/// The rounds of a measurement.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// All rounds that it needs, with the same team.
    AllRounds,
    /// One round. Whether its share is all of the team's capacity, and whether the team has other measurers.
    OneTurn { is_whole_team: bool, has_others: bool },
}

/// A failure, and the measurer concerned, if any.
struct Fault {
    measurer: Option<MeasurerId>,
    failure: Failure,
}

#[derive(Clone, Debug)]
enum Phase {
    Preparing { deadline: Instant },
    Running { start: Instant, series: Series },
    Done,
}

// Construction, commands and getters.
impl Measurement {
    /// Starts the first round. `residuals` holds what each measurer of the team has left for this relay, in all rounds;
    /// [`MeasurerId`]s are places in it. `guess` is the result of [`first_guess`](crate::Expectations::first_guess).
    ///
    /// # Errors
    /// Parameters out of range, a guess of zero, a team without capacity.
    pub fn new(
        now: Instant,
        params: Params,
        mode: Mode,
        guess: Rate,
        residuals: Vec<Rate>,
    ) -> Result<Self, SetupError> {
        Self::from_vantages(now, params, mode, guess, residuals, Vec::new())
    }

    /// Starts the first round with a team whose paths to the relay are known, by the members' places. Missing paths are
    /// unknown.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_vantages(
        now: Instant,
        params: Params,
        mode: Mode,
        guess: Rate,
        residuals: Vec<Rate>,
        vantages: Vec<MeasurerPath>,
    ) -> Result<Self, SetupError> {
        let turn = Attempt::first(guess, params.max_rounds);
        Self::begin(now, params, mode, turn, Scope::AllRounds, residuals, vantages)
    }

    /// Starts a turn, one round, with a team that has no other. If the result is inconclusive and another turn could
    /// make it conclusive, the turn ends with [`Inconclusive::LoadTooSmall`] as soon as that is certain. `residuals`
    /// holds the shares of a [`Launch`](crate::Launch); `is_whole_team` is that of the launch.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_turn(
        now: Instant,
        params: Params,
        mode: Mode,
        turn: Attempt,
        is_whole_team: bool,
        residuals: Vec<Rate>,
    ) -> Result<Self, SetupError> {
        let params = Params { max_rounds: turn.rounds_max, ..params };
        let scope = Scope::OneTurn { is_whole_team, has_others: !is_whole_team };
        Self::begin(now, params, mode, turn, scope, residuals, Vec::new())
    }

    /// Starts a turn for a launch of a [`Campaign`](crate::Campaign), which has more information about the team.
    /// `residuals` are those of the participating measurers, in the order of the launch's allocation.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_launch(
        now: Instant,
        params: Params,
        mode: Mode,
        launch: &Launch,
        residuals: Vec<Rate>,
    ) -> Result<Self, SetupError> {
        let Launch { turn, is_whole_team, has_others, vantages, .. } = launch;
        let params = Params { max_rounds: turn.rounds_max, ..params };
        let scope = Scope::OneTurn { is_whole_team: *is_whole_team, has_others: *has_others };
        Self::begin(now, params, mode, *turn, scope, residuals, vantages.clone())
    }

    fn begin(
        now: Instant,
        params: Params,
        mode: Mode,
        turn: Attempt,
        scope: Scope,
        residuals: Vec<Rate>,
        mut vantages: Vec<MeasurerPath>,
    ) -> Result<Self, SetupError> {
        params.validate()?;
        if turn.guess == Rate::ZERO {
            return Err(SetupError::NoGuess);
        }
        vantages.resize(residuals.len(), MeasurerPath::default());
        let allocation = turn.allocation(&params, &residuals, &vantages);
        if allocation.assignments.is_empty() {
            return Err(SetupError::NoCapacity);
        }
        let mut this = Self {
            params,
            mode,
            vantages,
            residuals,
            turn,
            scope,
            allocation,
            open: vec![],
            unreached: vec![],
            saturated: vec![],
            bottlenecks: vec![],
            patience: Duration::ZERO,
            phase: Phase::Done,
            over: vec![],
            before: None,
            actions: VecDeque::new(),
        };
        this.prepare(now);
        Ok(this)
    }

    /// Ends the measurement at once, as a failure.
    pub fn cancel(&mut self, now: Instant) {
        self.fail(now, None, Failure::Cancelled);
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// How the relay is loaded.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The current or last round, counted from one.
    #[must_use]
    pub const fn round(&self) -> u32 {
        self.turn.round
    }

    /// *z₀*: the capacity that this round expects.
    #[must_use]
    pub const fn guess(&self) -> Rate {
        self.turn.guess
    }

    /// The measurers that take part in this round.
    #[must_use]
    pub const fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// The seconds of this round that all have reported so far, in order; empty unless the round runs.
    pub fn seconds(&self) -> impl Iterator<Item = SecondTotals> {
        let series = match &self.phase {
            Phase::Running { series, .. } => Some(series),
            Phase::Preparing { .. } | Phase::Done => None,
        };
        series.into_iter().flat_map(Series::complete)
    }

    /// Data about the measurement besides the outcome: the finished rounds.
    #[must_use]
    pub fn course(&self) -> RoundHistory {
        RoundHistory { mode: self.mode, params: self.params, rounds: self.over.clone() }
    }

    /// Whether the measurement is over.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }
}

// Events.
impl Measurement {
    /// A measurer is ready, with this number of open sockets. The round starts once all are ready. If fewer than half
    /// of all sockets are open, the measurement ends (§4.1).
    pub fn handle_ready(&mut self, now: Instant, measurer: MeasurerId, round: u32, open: u32) {
        if self.is_stale(round) {
            return;
        }
        match self.ready(now, measurer, round, open) {
            Err(failure) => self.fail(now, Some(measurer), failure),
            Ok(()) if open > 0 => {
                if let Some((at, detail)) = self.unreached.pop() {
                    self.fail(now, Some(at), Failure::OutOfReach { detail });
                }
            }
            Ok(()) => {}
        }
    }

    /// The number of a measurer's open sockets changed after it was ready. Below half of all sockets the measurement
    /// ends (§4.1).
    pub fn handle_sockets(&mut self, now: Instant, measurer: MeasurerId, round: u32, open: u32) {
        if self.is_stale(round) {
            return;
        }
        if let Err(failure) = self.sockets(measurer, round, open) {
            self.fail(now, Some(measurer), failure);
        }
    }

    /// A measurer reports the share of the round in which its busiest thread was not idle. A measurer without spare
    /// processor time might otherwise have got more back. Then the other measurers have to show the relay's limit.
    pub fn handle_busy(&mut self, measurer: MeasurerId, round: u32, share: f64) {
        let is_its = !self.is_stale(round) && self.allocation.place(measurer).is_some();
        if is_its && share > BUSY_MAX && !self.saturated.contains(&measurer) {
            self.saturated.push(measurer);
        }
    }

    /// A measurer reports a second.
    pub fn handle_second(&mut self, now: Instant, measurer: MeasurerId, report: SecondReport) {
        if self.is_stale(report.round) {
            return;
        }
        match self.second(now, measurer, report) {
            Ok(()) => self.progress(now),
            Err(failure) => self.fail(now, Some(measurer), failure),
        }
    }

    /// The relay reports *yⱼ*, its client traffic of a second in bytes. Only in [`Mode::Echo`].
    pub fn handle_client_second(&mut self, now: Instant, round: u32, second: u32, bytes: u64) {
        if self.is_stale(round) {
            return;
        }
        match self.client_second(now, round, second, bytes) {
            Ok(()) => self.progress(now),
            Err(failure) => self.fail(now, None, failure),
        }
    }

    /// The relay reports the bytes that it sent to a measurer in a second, before its [client
    /// traffic](Self::handle_client_second) of that second. Only in [`Mode::Echo`].
    pub fn handle_sent_back(&mut self, round: u32, measurer: MeasurerId, bytes: u64) {
        if !self.is_stale(round)
            && let Phase::Running { series, .. } = &mut self.phase
        {
            series.record_sent(measurer, bytes);
        }
    }

    /// Something failed, at this measurer or (`None`) elsewhere. This ends the measurement, even if the failure belongs
    /// to an earlier round. There are exceptions. A measurer that fails by its own fault ([`Blame::Measurer`]) while it
    /// has no part in this round is only left out of later ones. A relay that cannot be reached is to blame only if no
    /// other measurer reaches it, so the measurement waits for the others. If nothing comes back from a relay, the
    /// reports decide whether it had data to send and was reachable, unless the failure itself shows it.
    pub fn handle_failure(&mut self, now: Instant, at: Option<MeasurerId>, failure: Failure) {
        let Fault { measurer: at, failure } = match failure {
            Failure::LoadStopped { detail } => self.explain_silence(now, at, detail),
            Failure::NothingReceived { detail } => self.explain_nothing_received(now, at, detail),
            Failure::RelayUnreachable { .. } | Failure::ClocksDiffer { .. } => {
                match self.out_of_reach(at, failure) {
                    Some(failure) => Fault { measurer: at, failure },
                    None => return,
                }
            }
            failure => Fault { measurer: at, failure },
        };
        let own = failure.blame() == Blame::Measurer;
        let idle = at.filter(|measurer| own && self.allocation.place(*measurer).is_none());
        match idle.and_then(|measurer| self.residuals.get_mut(measurer.0)) {
            Some(residual) => *residual = Rate::ZERO,
            None => self.fail(now, at, failure),
        }
    }

    /// Handles the passage of time. Does nothing before [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(Fault { measurer, failure }) = self.overdue(now) {
            self.fail(now, measurer, failure);
        }
    }

    /// Whether [`handle_timeout`](Self::handle_timeout) would blame the relay for a missing report on its clients,
    /// though measurers are still served. The coordinator's own path may have broken: its shell checks whether the
    /// relay's host answers, and reports [`Failure::CutOff`] if it does not.
    #[must_use]
    pub fn client_report_overdue(&self, now: Instant) -> bool {
        let overdue = self.overdue(now).map(|overdue| overdue.failure);
        matches!(overdue, Some(Failure::ClientReportMissing { .. }))
    }

    /// Doubles the timeout for the relay's report on its clients, once in a round. The relay's host answers, but an
    /// earlier report may have been lost on an interrupted path, and TCP retransmits at growing intervals. Returns
    /// whether the timeout was extended.
    pub fn extend_report_deadline(&mut self) -> bool {
        let may = self.patience.is_zero();
        self.patience = self.params.report_grace;
        may
    }

    /// The failure for the report that is missing.
    fn overdue(&self, now: Instant) -> Option<Fault> {
        if self.poll_timeout()? > now {
            return None;
        }
        match &self.phase {
            Phase::Preparing { .. } => {
                if let Some((at, detail)) = self.unreached.first() {
                    // No measurer has shown that the cause is the path.
                    let failure = Failure::RelayUnreachable { detail: detail.clone() };
                    return Some(Fault { measurer: Some(*at), failure });
                }
                let silent = self.open.iter().position(Option::is_none);
                let silent = silent.and_then(|place| self.allocation.assignments.get(place));
                let failure = Failure::NotReady { timeout: self.params.setup_timeout };
                Some(Fault { measurer: silent.map(|silent| silent.measurer), failure })
            }
            Phase::Running { series, .. } => {
                let Missing { second, source } = series.first_missing()?;
                let (measurer, failure) = match source {
                    Source::Measurer(measurer) => {
                        (Some(measurer), Failure::SecondMissing { second })
                    }
                    Source::Relay if series.is_cut_off_after(second) => {
                        let detail = format!(
                            "the relay's report on second {second} did not arrive, and soon nothing came back to any measurer"
                        );
                        (None, Failure::LoadStopped { detail })
                    }
                    Source::Relay => (None, Failure::ClientReportMissing { second }),
                };
                Some(Fault { measurer, failure })
            }
            Phase::Done => None,
        }
    }
}

// Actions.
impl Measurement {
    /// The next action. Call it until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` once the measurement is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Preparing { deadline } => Some(*deadline),
            Phase::Running { start, series } => series.first_missing().map(|missing| {
                let end = Duration::from_secs(u64::from(missing.second) + 1);
                let patience = match missing.source {
                    Source::Relay => self.patience,
                    Source::Measurer(_) => Duration::ZERO,
                };
                *start + end + self.params.report_grace + patience
            }),
            Phase::Done => None,
        }
    }
}

mod rounds;
#[cfg(test)]
mod tests;
mod verdict;
