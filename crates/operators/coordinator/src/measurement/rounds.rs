//! The transitions of a [`Measurement`] from one round to the next.

use super::*;
use crate::series::spread;
use crate::socket_ramp::{FAR, Schedule};
use alloc::borrow::ToOwned;
use alloc::string::ToString;

// Input. An error ends the measurement.
impl Measurement {
    /// Whether this arrives too late to matter.
    pub(super) fn is_stale(&self, round: u32) -> bool {
        self.is_done() || round < self.turn.round
    }

    pub(super) fn ready(
        &mut self,
        now: Instant,
        measurer: MeasurerId,
        round: u32,
        open: u32,
    ) -> Result<(), Failure> {
        let place = self.place(measurer, round)?;
        if self.open.get(place).is_some_and(Option::is_some) {
            return Err(Failure::MeasurerViolation(Violation::ReadyTwice));
        }
        self.set_open(place, open)?;
        if self.open.iter().all(Option::is_some) {
            self.check_sockets()?;
            let assignments = self.allocation.assignments.iter().copied();
            let (ratio, seconds) = (self.params.ratio, self.params.round_s());
            let series = Series::new(self.mode, ratio, seconds, self.schedule(), assignments);
            self.phase = Phase::Running { start: now, series };
            self.actions.push_back(Action::Start { round: self.turn.round });
        }
        Ok(())
    }

    pub(super) fn sockets(
        &mut self,
        measurer: MeasurerId,
        round: u32,
        open: u32,
    ) -> Result<(), Failure> {
        let place = self.place(measurer, round)?;
        if self.open.get(place).is_some_and(Option::is_some) {
            self.set_open(place, open)?;
        }
        match self.phase {
            Phase::Running { .. } => self.check_sockets(),
            Phase::Preparing { .. } | Phase::Done => Ok(()),
        }
    }

    pub(super) fn second(
        &mut self,
        now: Instant,
        measurer: MeasurerId,
        report: SecondReport,
    ) -> Result<(), Failure> {
        self.place(measurer, report.round)?;
        let series = self.series_at(now, report.second).map_err(Failure::MeasurerViolation)?;
        let recorded = series.record(measurer, report);
        recorded.and_then(|()| series.check(measurer)).map_err(Failure::MeasurerViolation)
    }

    pub(super) fn client_second(
        &mut self,
        now: Instant,
        round: u32,
        second: u32,
        bytes: u64,
    ) -> Result<(), Failure> {
        if self.mode == Mode::Transit {
            return Err(Failure::Internal {
                detail: "client traffic reported in transit mode".to_owned(),
            });
        }
        self.check_round(round).map_err(Failure::RelayViolation)?;
        let series = self.series_at(now, second).map_err(Failure::RelayViolation)?;
        series.record_client(second, bytes).map_err(Failure::RelayViolation)
    }

    /// A measurer's place in this round.
    fn place(&self, measurer: MeasurerId, round: u32) -> Result<usize, Failure> {
        if measurer.0 >= self.residuals.len() {
            return Err(Failure::Internal {
                detail: "a measurer that is not in the team".to_owned(),
            });
        }
        self.check_round(round).map_err(Failure::MeasurerViolation)?;
        let place = self.allocation.place(measurer);
        place.ok_or(Failure::MeasurerViolation(Violation::NotAssigned))
    }

    fn check_round(&self, reported: u32) -> Result<(), Violation> {
        let current = self.turn.round;
        if reported == current { Ok(()) } else { Err(Violation::NoSuchRound { reported, current }) }
    }

    /// The series, if this second has begun.
    fn series_at(&mut self, now: Instant, second: u32) -> Result<&mut Series, Violation> {
        match &mut self.phase {
            Phase::Running { start, series }
                if now >= *start + Duration::from_secs(u64::from(second)) =>
            {
                Ok(series)
            }
            _ => Err(Violation::Premature { second }),
        }
    }

    /// The failure if a measurer cannot reach the relay, as it reports in `failure`; `None` while others of this round may still show the cause.
    pub(super) fn out_of_reach(
        &mut self,
        at: Option<MeasurerId>,
        failure: Failure,
    ) -> Option<Failure> {
        let placed = at.filter(|measurer| self.allocation.place(*measurer).is_some());
        let is_preparing = matches!(self.phase, Phase::Preparing { .. });
        let Some(measurer) = placed.filter(|_| is_preparing) else {
            return Some(failure);
        };
        let detail = match &failure {
            Failure::RelayUnreachable { detail } | Failure::ClocksDiffer { detail } => {
                detail.clone()
            }
            other => other.to_string(),
        };
        if self.open.iter().flatten().any(|open| *open > 0) {
            return Some(Failure::OutOfReach { detail });
        }
        if self.unreached.iter().all(|(unreached, _)| *unreached != measurer) {
            self.unreached.push((measurer, detail));
        }
        let is_unreached_by_all = self.unreached.len() == self.allocation.assignments.len();
        is_unreached_by_all.then_some(failure)
    }

    fn set_open(&mut self, place: usize, open: u32) -> Result<(), Failure> {
        let assigned =
            self.allocation.assignments.get(place).map_or(0, |assignment| assignment.sockets);
        if open > assigned {
            let violation = Violation::TooManySockets { open, assigned };
            return Err(Failure::MeasurerViolation(violation));
        }
        if let Some(slot) = self.open.get_mut(place) {
            *slot = Some(open);
        }
        Ok(())
    }

    fn check_sockets(&self) -> Result<(), Failure> {
        let open: u32 = self.open.iter().flatten().sum();
        let assigned = self.allocation.sockets();
        let is_enough = open >= assigned.div_ceil(2);
        if is_enough { Ok(()) } else { Err(Failure::TooFewSockets { open, assigned }) }
    }
}

// Transitions.
impl Measurement {
    /// Orders the round that the allocation describes.
    pub(super) fn prepare(&mut self, now: Instant) {
        self.open = vec![None; self.allocation.assignments.len()];
        self.unreached.clear();
        self.saturated.clear();
        self.bottlenecks.clear();
        self.patience = Duration::ZERO;
        self.phase = Phase::Preparing { deadline: now + self.params.setup_timeout };
        self.actions.push_back(Action::Prepare {
            round: self.turn.round,
            assignments: self.allocation.assignments.clone(),
            seconds: self.params.round_s(),
            held_back_s: self.schedule().held_back_s,
            few_circuits_s: self.schedule().few_circuits_s,
            check_share: self.params.check_share,
        });
    }

    /// The start of this round's sockets, and the seconds that count.
    pub(super) fn schedule(&self) -> Schedule {
        let lead_s = self.params.path.lead_s;
        let middle = lead_s + self.params.seconds / 2;
        let held_back_s = self.turn.has_halves(&self.params).then_some(middle);
        // Halves show competition, too.
        let few_circuits_s =
            if held_back_s.is_some() { 0 } else { self.params.path.few_circuits_s };
        Schedule { lead_s, held_back_s, few_circuits_s }
    }

    /// After a second arrived: ends the round if it is complete, or if it can no longer be conclusive and another one
    /// would follow. The last round always has its full length, so that a lower bound too is the median of all its
    /// seconds.
    pub(super) fn progress(&mut self, now: Instant) {
        let Phase::Running { series, .. } = &self.phase else { return };
        let limit = self.params.conclusive_limit(self.allocation.total());
        match series.summary() {
            Ok(summary) => self.conclude(now, summary),
            Err(_) if limit > Rate::ZERO && series.median_must_reach(limit) => {
                if let Ok(next) = self.next_turn(Rate::from_byte_per_s(series.median_so_far())) {
                    let seconds: Vec<SecondTotals> = series.complete().collect();
                    let reason = Inconclusive::LoadTooSmall { next };
                    let certain = limit.min(Rate::from_byte_per_s(series.least_mean()));
                    let certain = certain.max(self.turn.passed);
                    let so_far = self.estimate(series, certain, seconds, Some(reason));
                    self.continue_with(now, so_far, next);
                }
            }
            Err(_) => {}
        }
    }

    /// The turn after this round, in which the relay forwarded `seen`, or the reason why none would follow.
    pub(super) fn next_turn(&self, seen: Rate) -> Result<Attempt, Inconclusive> {
        let is_exhausted = match self.scope {
            Scope::AllRounds => self.allocation.is_exhausted(),
            Scope::OneTurn { is_whole_team, .. } => is_whole_team,
        };
        if is_exhausted {
            let needed = seen.scaled(self.params.excess_factor());
            let available = self.allocation.available;
            return Err(Inconclusive::TeamTooSmall { needed, available });
        }
        let rounds = self.params.max_rounds;
        let next = self.turn.enlarged(seen).ok_or(Inconclusive::RoundLimit { rounds })?;
        let farthest = match &self.phase {
            Phase::Running { series, .. } => series.farthest(),
            Phase::Preparing { .. } | Phase::Done => None,
        };
        // A distant relay needs two measurers.
        Ok(if farthest.is_some_and(|rtt| rtt >= FAR) { next.by_two() } else { next })
    }

    /// Judges a complete round (§4.2).
    fn conclude(&mut self, now: Instant, summary: Summary) {
        let Phase::Running { series, .. } = &self.phase else { return };
        let Summary { seconds, median, mean, .. } = summary;
        if median == 0 {
            let idle = seconds.iter().filter(|totals| totals.total() == 0).count();
            let idle = u32::try_from(idle).unwrap_or(u32::MAX);
            let failure = Failure::RelayedNothing { idle, seconds: self.params.seconds };
            let failure = if series.was_idle_in_reach() {
                failure
            } else {
                Failure::LoadStopped { detail: failure.to_string() }
            };
            return self.fail(now, None, failure);
        }
        let unchecked = || series.unchecked(self.params.check_share);
        if let Some((measurer, failure)) = series.disagreement().or_else(unchecked) {
            return self.fail(now, Some(measurer), failure);
        }
        // Never above the mean: a relay gains nothing from seconds that it did not serve.
        let capacity = Rate::from_byte_per_s(median.min(mean));
        self.turn.passed = self.turn.passed.max(capacity);
        let bottlenecks = self.bottlenecks_in(series);
        let doubt = match self.doubt(series, &bottlenecks, capacity, &seconds) {
            Ok(doubt) => doubt,
            Err(Fault { measurer, failure }) => return self.fail(now, measurer, failure),
        };
        let doubt = doubt.or_else(|| self.doubt_of_result(series, &bottlenecks, &seconds));
        let has_next = doubt.is_some_and(|doubt| doubt.next_turn().is_some());
        let doubt = if has_next { doubt } else { self.doubt_of_fall().or(doubt) };
        let estimate = self.estimate(series, self.turn.passed, seconds, doubt);
        self.bottlenecks = bottlenecks;
        match doubt.and_then(|doubt| doubt.next_turn()) {
            Some(next) => self.continue_with(now, estimate, next),
            None => self.finish(Outcome::Measured(estimate)),
        }
    }

    fn estimate(
        &self,
        series: &Series,
        capacity: Rate,
        seconds: Vec<SecondTotals>,
        inconclusive: Option<Inconclusive>,
    ) -> Estimate {
        Estimate {
            capacity,
            inconclusive,
            rounds: self.turn.round,
            allocated: self.allocation.total(),
            spread: spread(&seconds),
            seconds,
            checked_cells: series.checked_cells(),
            mode: self.mode,
            params: self.params,
        }
    }

    /// The next turn: here, or where the team's capacity is allocated (§4.2).
    fn continue_with(&mut self, now: Instant, so_far: Estimate, next: Attempt) {
        match self.scope {
            Scope::OneTurn { .. } => self.finish(Outcome::Measured(so_far)),
            Scope::AllRounds => {
                self.end_round();
                self.before = Some(so_far);
                self.residuals = self.without_limited(&self.bottlenecks);
                self.learn_paths();
                self.turn = next;
                self.allocation = next.allocation(&self.params, &self.residuals, &self.vantages);
                self.prepare(now);
            }
        }
    }

    /// All measurers' paths to the relay, by the finished round.
    fn learn_paths(&mut self) {
        let Some(round) = self.over.last() else { return };
        for (place, assignment) in round.allocation.assignments.iter().enumerate() {
            if let Some(vantage) = self.vantages.get_mut(assignment.measurer.0) {
                vantage.path.see(round, place, &self.params);
            }
        }
    }

    /// The failure if nothing comes back to a measurer and it does not know the cause. The relay is to blame if the
    /// latest second shows that it had data to send back and was reachable. Otherwise the path is: this measurer's, if
    /// others were served meanwhile.
    pub(super) fn explain_silence(
        &self,
        now: Instant,
        measurer: Option<MeasurerId>,
        detail: String,
    ) -> Fault {
        match self.while_silent(now) {
            Some((series, second)) if series.shows_stalled_relay(measurer, second) => {
                Fault { measurer, failure: Failure::RelayStalled { detail } }
            }
            Some((series, second))
                if measurer.is_some() && series.others_were_served(measurer, second) =>
            {
                Fault { measurer, failure: Failure::OutOfReach { detail } }
            }
            _ => Fault { measurer: None, failure: Failure::LoadStopped { detail } },
        }
    }

    /// The failure if the relay reports that nothing has arrived from any measurer for three seconds. The report is
    /// false if something still comes back, and invalid before a round. Otherwise the cause may be the path.
    pub(super) fn explain_nothing_received(
        &self,
        now: Instant,
        measurer: Option<MeasurerId>,
        detail: String,
    ) -> Fault {
        match &self.phase {
            Phase::Running { .. } => match self.while_silent(now) {
                Some((series, second)) if series.others_were_served(None, second + 1) => {
                    let detail = format!("{detail}; but cells still come back");
                    Fault { measurer, failure: Failure::RelayBrokeProtocol { detail } }
                }
                _ => self.explain_silence(now, None, detail),
            },
            Phase::Preparing { .. } | Phase::Done => {
                let detail = format!("{detail}; and nothing has been sent to it yet");
                Fault { measurer, failure: Failure::RelayBrokeProtocol { detail } }
            }
        }
    }

    /// The reports of the running round, and a second that is certainly among the last three: with the accuracy of the
    /// clocks, the middle one.
    fn while_silent(&self, now: Instant) -> Option<(&Series, u32)> {
        let Phase::Running { start, series } = &self.phase else { return None };
        let passed = u32::try_from(now.saturating_since(*start).as_secs()).unwrap_or(u32::MAX);
        Some((series, passed.checked_sub(2)?))
    }

    /// If a relay declines another round, the result of the previous one remains.
    pub(super) fn fail(&mut self, now: Instant, measurer: Option<MeasurerId>, reason: Failure) {
        let second = match &self.phase {
            Phase::Preparing { .. } => None,
            Phase::Running { start, .. } => {
                let passed = u32::try_from(now.saturating_since(*start).as_secs());
                Some(passed.unwrap_or(u32::MAX).min(self.params.round_s() - 1))
            }
            Phase::Done => return,
        };
        let before = self.before.take().filter(|_| reason.is_not_now());
        let round = self.turn.round;
        self.finish(match before {
            Some(estimate) => Outcome::Measured(estimate),
            None => Outcome::Failed { reason, measurer, round, second },
        });
    }

    fn finish(&mut self, outcome: Outcome) {
        self.end_round();
        self.phase = Phase::Done;
        self.actions.push_back(Action::Done(outcome));
    }

    fn end_round(&mut self) {
        let (checked_cells, seconds) = match &self.phase {
            Phase::Running { series, .. } => (series.checked_cells(), series.records()),
            Phase::Preparing { .. } | Phase::Done => (0, vec![]),
        };
        self.over.push(RoundRecord {
            number: self.turn.round,
            guess: self.turn.guess,
            allocation: self.allocation.clone(),
            schedule: self.schedule(),
            started_unix_s: None,
            checked_cells,
            bottlenecks: self.bottlenecks.clone(),
            seconds,
        });
        self.actions.push_back(Action::Stop { round: self.turn.round });
    }
}
