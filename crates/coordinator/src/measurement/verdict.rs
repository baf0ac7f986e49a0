//! Whether a complete round is conclusive (§4.2), and if not, why.

use super::*;
use crate::halves::{FAR, Halves};
use crate::hindrance::{Hindrance, own_queues, whole_ms};

/// What a measurer that something of its own has held back is asked for in a later round, of what it got.
const HINDERED_ASKED: f64 = 1.25;

impl Measurement {
    /// The measurers that something of their own held back in a complete round.
    pub(super) fn hindered_in(&self, series: &Series) -> Vec<Hindered> {
        let hindered = |measurer, by| Hindered { measurer, by, got: series.got(measurer) };
        let busy = self.saturated.iter().map(|it| hindered(*it, Hindrance::Processor));
        let queues = series.queues();
        let queued = own_queues(&queues).filter(|(measurer, _)| !self.saturated.contains(measurer));
        let queued = queued.map(|(measurer, longer)| {
            hindered(measurer, Hindrance::Path { queue_ms: whole_ms(longer) })
        });
        busy.chain(queued).collect()
    }

    /// What each measurer has left for later rounds, if those that were held back are not asked for more than
    /// they can do.
    pub(super) fn without_hindered(&self, hindered: &[Hindered]) -> Vec<Rate> {
        let mut residuals = self.residuals.clone();
        for it in hindered {
            if let Some(residual) = residuals.get_mut(it.measurer.0) {
                *residual = it.got.scaled(HINDERED_ASKED).min(*residual);
            }
        }
        residuals
    }

    /// Why a complete round is not conclusive, and the turn that could be, if one follows. An error is the
    /// end of the measurement.
    pub(super) fn doubt(
        &self,
        series: &Series,
        hindered: &[Hindered],
        capacity: Rate,
        seconds: &[SecondTotals],
    ) -> Result<Option<Inconclusive>, (Option<MeasurerId>, Failure)> {
        // The share of a measurer that got nothing back was no load: it must not make an estimate
        // look conclusive.
        let (working, silent): (Vec<Assignment>, Vec<Assignment>) =
            self.allocation.assignments.iter().partition(|it| series.got_anything(it.measurer));
        if let Some(first) = hindered.first() {
            // What they got the relay has done, as if for clients; the others must show that it had no more.
            let theirs: Rate = hindered.iter().map(|it| it.got).sum();
            let load = load_without(hindered, &working);
            if capacity.saturating_sub(theirs) >= self.params.conclusive_limit(load) {
                let next = self.turn_of_others(hindered, capacity);
                return Ok(Some(Inconclusive::MeasurerHindered { hindered: *first, next }));
            }
        }
        let load: Rate = working.iter().map(|it| it.rate).sum();
        if capacity >= self.params.conclusive_limit(load) {
            if capacity < self.params.conclusive_limit(self.allocation.total()) {
                let measurer = silent.first().map(|it| it.measurer);
                return Err((measurer, Failure::GotNothing));
            }
            let next = self.next_turn(capacity);
            return Ok(Some(next.map_or_else(|it| it, |next| Inconclusive::LoadTooSmall { next })));
        }
        if let Some(queue) = self.queue_of_one(series) {
            let next = self.turn.compared(capacity);
            return Ok(Some(Inconclusive::QueueOfOne { queue_ms: whole_ms(queue), next }));
        }
        let schedule = self.schedule();
        let halves = schedule.halves(seconds).filter(|_| self.allocation.has_two_halves());
        let Some(halves) = halves else {
            // Nobody knows what more sockets would have brought. Another round shows it, unless its seconds
            // or sockets are too few for halves.
            let has_halves = schedule.held_back_s.is_some();
            let next = if has_halves { None } else { self.turn.widened(capacity, 2) };
            return Ok(series
                .farthest()
                .filter(|rtt| *rtt >= FAR)
                .map(|rtt| Inconclusive::PathUnknown { rtt_ms: whole_ms(rtt), next }));
        };
        if halves.is_settling() && !halves.is_held_back() {
            return Ok(Some(Inconclusive::PathSettling {
                change_percent: percent_above_one(halves.change()),
                sockets: self.allocation.sockets(),
                next: self.wider_turn(capacity, &halves),
            }));
        }
        Ok(halves.is_held_back().then(|| Inconclusive::PathLimited {
            growth_percent: percent_above_one(halves.growth()),
            sockets: self.allocation.sockets(),
            next: self.wider_turn(capacity, &halves),
        }))
    }

    /// The turn in which those that nothing of their own held back have more to do, if there are such.
    fn turn_of_others(&self, hindered: &[Hindered], seen: Rate) -> Option<Turn> {
        if let Scope::OneTurn { is_whole_team } = self.scope {
            // Whoever shares out the team does not know of them: all have twice as much to do.
            let next = if is_whole_team { None } else { self.turn.enlarged(seen) };
            return next.map(|next| Turn { measurers_min: next.measurers_min.max(2), ..next });
        }
        let next = self.turn.compared(seen)?;
        let later = next.allocation(&self.params, &self.without_hindered(hindered), &self.rtts);
        let load = |allocation: &Allocation| load_without(hindered, &allocation.assignments);
        (load(&later) > load(&self.allocation)).then_some(next)
    }

    /// How long packets waited on the path of the only measurer, if a queue stood there and if another measurer
    /// could show whether it was the relay's.
    fn queue_of_one(&self, series: &Series) -> Option<Duration> {
        let is_alone = self.allocation.assignments.len() == 1;
        let has_others = match self.scope {
            Scope::AllRounds => self.residuals.iter().filter(|it| **it > Rate::ZERO).count() > 1,
            Scope::OneTurn { is_whole_team } => !is_whole_team,
        };
        let queue = series.queues().into_iter().find(|it| is_alone && has_others && it.stands())?;
        Some(queue.wait)
    }

    /// The turn with more sockets, if there may be more and the relay has another turn.
    fn wider_turn(&self, seen: Rate, halves: &Halves) -> Option<Turn> {
        let has_all = self.allocation.sockets() >= self.params.sockets;
        if has_all { None } else { self.turn.widened(seen, halves.widening()) }
    }
}

/// What was asked of those that nothing of their own held back.
fn load_without(hindered: &[Hindered], assignments: &[Assignment]) -> Rate {
    let is_free = |it: &&Assignment| hindered.iter().all(|held| held.measurer != it.measurer);
    assignments.iter().filter(is_free).map(|it| it.rate).sum()
}

/// By how many percent more one was than the other, rounded.
#[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
#[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
fn percent_above_one(quotient: f64) -> u32 {
    ((quotient - 1.0) * 100.0 + 0.5) as u32
}
