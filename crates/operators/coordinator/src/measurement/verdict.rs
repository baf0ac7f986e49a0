//! Whether a complete round is conclusive (§4.2), and if not, why.

use super::*;
use crate::account::Waited;
use crate::bottleneck::{
    Bottleneck, LIMITED_ASKED, MeasurerResult, Queue, own_losses, own_queues, starved, whole_ms,
};
use crate::held_seconds::doubt_of_seconds;
use crate::socket_ramp::{FAR, SocketRampTest};

/// A bottleneck passes no more with twice the sockets; flows with independent losses carry twice as much.
const OWN_GROWTH: f64 = 1.3;

impl Measurement {
    /// The measurers that were limited by a cause of their own in a complete round, and that more sockets would not
    /// help.
    pub(super) fn bottlenecks_in(&self, series: &Series) -> Vec<MeasurerBottleneck> {
        let mut all = self.limited_in(series);
        all.retain(|bottleneck| self.growing(series, bottleneck).is_none());
        all
    }

    /// The halves of a limited measurer's round, if it got much more back with all of its sockets than with half of
    /// them: then its flows lose packets independently, and there is no bottleneck.
    fn growing(&self, series: &Series, limited: &MeasurerBottleneck) -> Option<SocketRampTest> {
        let own = series.measured_by(|measurer| measurer == limited.measurer);
        self.schedule().halves(&own).filter(|halves| halves.growth() > OWN_GROWTH)
    }

    /// The measurers that were limited by a cause of their own, each with its most certain cause.
    fn limited_in(&self, series: &Series) -> Vec<MeasurerBottleneck> {
        let bottleneck =
            |(measurer, by)| MeasurerBottleneck { measurer, by, got: series.got(measurer) };
        let busy = self.saturated.iter().copied().chain(series.mostly_busy());
        let busy = busy.map(|measurer| (measurer, Bottleneck::Processor));
        let queues = series.queues();
        let results = series.measurer_results();
        let mut all: Vec<MeasurerBottleneck> = Vec::new();
        for found in busy.chain(own_queues(&queues)).chain(own_losses(&results)) {
            if all.iter().all(|known| known.measurer != found.0) {
                all.push(bottleneck(found));
            }
        }
        // The results of limited measurers show nothing about the others.
        let is_free =
            |result: &MeasurerResult| all.iter().all(|known| known.measurer != result.id());
        let free: Vec<MeasurerResult> = results.into_iter().filter(is_free).collect();
        all.extend(starved(&free).map(bottleneck));
        all
    }

    /// The capacity that each measurer has left for later rounds, if limited measurers are assigned no more than they
    /// can carry.
    pub(super) fn without_limited(&self, bottlenecks: &[MeasurerBottleneck]) -> Vec<Rate> {
        let mut residuals = self.residuals.clone();
        for bottleneck in bottlenecks {
            if let Some(residual) = residuals.get_mut(bottleneck.measurer.0) {
                *residual = bottleneck.got.scaled(LIMITED_ASKED).min(*residual);
            }
        }
        residuals
    }

    /// Why a complete round is not conclusive, with the turn that follows, if any.
    ///
    /// # Errors
    /// The failure that ends the measurement.
    pub(super) fn doubt(
        &self,
        series: &Series,
        bottlenecks: &[MeasurerBottleneck],
        capacity: Rate,
        seconds: &[SecondTotals],
    ) -> Result<Option<Inconclusive>, Fault> {
        // The share of a measurer that got nothing back was no load: it must not make an estimate look conclusive.
        let (working, silent): (Vec<Assignment>, Vec<Assignment>) = self
            .allocation
            .assignments
            .iter()
            .partition(|assignment| series.got_anything(assignment.measurer));
        if let Some(first) = bottlenecks.first() {
            // The traffic of limited measurers counts like that of clients. The others must show the relay's limit.
            let theirs: Rate = bottlenecks.iter().map(|bottleneck| bottleneck.got).sum();
            let load = load_without(bottlenecks, &working);
            if capacity.saturating_sub(theirs) >= self.params.conclusive_limit(load) {
                let next = self.turn_of_others(bottlenecks, capacity);
                return Ok(Some(Inconclusive::MeasurerLimited { bottleneck: *first, next }));
            }
        }
        let load: Rate = working.iter().map(|assignment| assignment.rate).sum();
        // A load below the result of an earlier round shows no limit.
        let passed = self.turn.passed.max(capacity);
        if passed >= self.params.conclusive_limit(load) {
            if passed < self.params.conclusive_limit(self.allocation.total()) {
                let measurer = silent.first().map(|assignment| assignment.measurer);
                return Err(Fault { measurer, failure: Failure::GotNothing });
            }
            let next = self.next_turn(passed);
            return Ok(Some(next.map_or_else(
                |inconclusive| inconclusive,
                |next| Inconclusive::LoadTooSmall { next },
            )));
        }
        if let Some(queue) = self.queue_of_one(series).filter(Queue::exists) {
            return Ok(Some(self.doubt_of_one(&queue, capacity)));
        }
        let schedule = self.schedule();
        let halves = schedule.halves(seconds).filter(|_| self.allocation.has_two_halves());
        let Some(halves) = halves else {
            // The effect of more sockets is unknown. Another round shows it, unless its seconds or sockets are too few
            // for halves.
            let had_halves = schedule.held_back_s.is_some();
            let next = if had_halves { None } else { self.turn.widened(capacity, 2) };
            let next = next.map(Attempt::by_two);
            return Ok(series
                .farthest()
                .filter(|rtt| *rtt >= FAR)
                .map(|rtt| Inconclusive::PathUnknown { rtt_ms: whole_ms(rtt), next }));
        };
        // The constant results of limited measurers hide the effect of the path on the others.
        let is_free = |measurer| bottlenecks.iter().all(|limited| limited.measurer != measurer);
        let of_others = schedule.halves(&series.measured_by(is_free));
        let of_others = of_others.filter(|_| !bottlenecks.is_empty());
        let limited = self.limited_in(series);
        let growing = limited.iter().filter_map(|bottleneck| self.growing(series, bottleneck));
        let held_back = growing.chain(of_others).filter(SocketRampTest::is_held_back);
        let halves = held_back
            .fold(halves, |most, test| if test.growth() > most.growth() { test } else { most });
        if halves.is_held_back() {
            return Ok(Some(Inconclusive::PathLimited {
                growth_percent: percent_above_one(halves.growth()),
                sockets: self.allocation.sockets(),
                next: self.wider_turn(capacity, &halves),
            }));
        }
        if halves.is_settling() {
            return Ok(Some(Inconclusive::PathSettling {
                change_percent: percent_above_one(halves.change()),
                sockets: self.allocation.sockets(),
                next: self.wider_turn(capacity, &halves),
            }));
        }
        // Not every bottleneck has a queue: a distant relay needs two measurers.
        let far = self.queue_of_one(series).filter(|queue| queue.min_rtt >= FAR);
        Ok(far.map(|queue| self.doubt_of_one(&queue, capacity)))
    }

    /// Why a complete round whose load was large enough is not conclusive: by its seconds, or since nothing is known of
    /// clients.
    pub(super) fn doubt_of_result(
        &self,
        series: &Series,
        bottlenecks: &[MeasurerBottleneck],
        seconds: &[SecondTotals],
    ) -> Option<Inconclusive> {
        let schedule = self.schedule();
        let times = self.allocation.times_few_sockets();
        let competition = schedule
            .competition(|second| series.second(second).map(|second| second.total()), seconds)
            .filter(|test| test.is_contended(times) || test.has_fallen())
            .map(|test| Inconclusive::Contended { few: test.few, all: test.all });
        let assignments = &self.allocation.assignments;
        let records = series.records();
        let counted = records.iter().filter(|record| schedule.counts(record.second));
        let waited = counted.map(|record| record.waited(assignments, bottlenecks));
        let seconds: Vec<(u64, Option<Waited>)> =
            seconds.iter().map(SecondTotals::total).zip(waited).collect();
        let doubt = match doubt_of_seconds(&seconds) {
            Some(Inconclusive::HeldBack { by: by @ Waited::AssignedRate, seconds, of, .. }) => {
                let next = self.next_turn(self.turn.passed).ok();
                Some(Inconclusive::HeldBack { by, seconds, of, next })
            }
            doubt => doubt,
        };
        let may_have_clients = self.mode == Mode::Transit && self.params.may_have_clients;
        let clients = may_have_clients.then_some(Inconclusive::ClientsUnknown);
        competition.or(doubt).or(clients)
    }

    /// The doubt about a result far below the relay's recent ones, as long as another measurement may confirm it.
    pub(super) fn doubt_of_fall(&self) -> Option<Inconclusive> {
        let recent = self.turn.recent;
        let next = self.turn.confirming().filter(|_| self.turn.is_below_recent())?;
        Some(Inconclusive::BelowRecent { recent, next })
    }

    /// The turn in which measurers without a bottleneck of their own have a larger load, if there are such.
    fn turn_of_others(&self, bottlenecks: &[MeasurerBottleneck], seen: Rate) -> Option<Attempt> {
        if let Scope::OneTurn { is_whole_team, has_others } = self.scope {
            let is_one_free = bottlenecks.len() < self.allocation.assignments.len();
            if is_whole_team || !(has_others || is_one_free) {
                return None;
            }
            // The campaign assigns a larger load to the others. If it has already done so, and that was not enough, the
            // whole load is doubled.
            let is_known = |bottleneck: &MeasurerBottleneck| {
                self.vantages
                    .get(bottleneck.measurer.0)
                    .is_some_and(|vantage| vantage.path.limit.is_some())
            };
            let is_new = bottlenecks.iter().any(|bottleneck| !is_known(bottleneck));
            let next = if is_new { self.turn.compared(seen) } else { self.turn.enlarged(seen) };
            return next.map(Attempt::by_two);
        }
        let next = self.turn.compared(seen)?;
        let later =
            next.allocation(&self.params, &self.without_limited(bottlenecks), &self.vantages);
        let load = |allocation: &Allocation| load_without(bottlenecks, &allocation.assignments);
        (load(&later) > load(&self.allocation)).then_some(next)
    }

    /// The queueing delay on the path of the only measurer, if another one could show whether the queue is the relay's.
    fn queue_of_one(&self, series: &Series) -> Option<Queue> {
        let is_alone = self.allocation.assignments.len() == 1;
        let has_others = match self.scope {
            Scope::AllRounds => {
                self.residuals.iter().filter(|residual| **residual > Rate::ZERO).count() > 1
            }
            Scope::OneTurn { has_others, .. } => has_others,
        };
        series.queues().into_iter().find(|_| is_alone && has_others)
    }

    fn doubt_of_one(&self, queue: &Queue, seen: Rate) -> Inconclusive {
        let next = self.turn.compared(seen);
        Inconclusive::QueueOfOne { queue_ms: whole_ms(queue.wait), next }
    }

    /// The turn with more sockets, if there may be more and the relay has another turn.
    fn wider_turn(&self, seen: Rate, halves: &SocketRampTest) -> Option<Attempt> {
        let has_all = self.allocation.sockets() >= self.params.sockets;
        let next = if has_all { None } else { self.turn.widened(seen, halves.widening()) };
        next.map(Attempt::by_two)
    }
}

/// The load of the measurers without a bottleneck of their own.
fn load_without(bottlenecks: &[MeasurerBottleneck], assignments: &[Assignment]) -> Rate {
    let is_free = |assignment: &&Assignment| {
        bottlenecks.iter().all(|limited| limited.measurer != assignment.measurer)
    };
    assignments.iter().filter(is_free).map(|assignment| assignment.rate).sum()
}

/// By how many percent a quotient exceeds one, rounded.
#[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
#[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
fn percent_above_one(quotient: f64) -> u32 {
    ((quotient - 1.0) * 100.0 + 0.5) as u32
}
