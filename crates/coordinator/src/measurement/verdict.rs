//! Whether a complete round is conclusive (§4.2), and if not, why.

use super::*;
use crate::halves::{FAR, Halves};

impl Measurement {
    /// Why a complete round is not conclusive, and the turn that could be, if one follows. An error is the
    /// end of the measurement.
    pub(super) fn doubt(
        &self,
        series: &Series,
        capacity: Rate,
        seconds: &[SecondTotals],
    ) -> Result<Option<Inconclusive>, (Option<MeasurerId>, Failure)> {
        if let Some(measurer) = self.saturated {
            // More load is not to be had from it: another round would say the same.
            return Ok(Some(Inconclusive::MeasurerSaturated { measurer }));
        }
        // The share of a measurer that got nothing back was no load: it must not make an estimate
        // look conclusive.
        let (working, silent): (Vec<Assignment>, Vec<Assignment>) =
            self.allocation.assignments.iter().partition(|it| series.got_anything(it.measurer));
        let load: Rate = working.iter().map(|it| it.rate).sum();
        if capacity >= self.params.conclusive_limit(load) {
            if capacity < self.params.conclusive_limit(self.allocation.total()) {
                let measurer = silent.first().map(|it| it.measurer);
                return Err((measurer, Failure::GotNothing));
            }
            let next = self.next_turn(capacity);
            return Ok(Some(next.map_or_else(|it| it, |next| Inconclusive::LoadTooSmall { next })));
        }
        let schedule = self.schedule();
        let halves = schedule.halves(seconds).filter(|_| self.allocation.has_two_halves());
        let Some(halves) = halves else {
            // Nobody knows what more sockets would have brought. Another round shows it, unless its seconds
            // or sockets are too few for halves.
            let has_halves = schedule.held_back_s.is_some();
            let next = if has_halves { None } else { self.turn.widened(capacity, 2) };
            return Ok(series.farthest().filter(|rtt| *rtt >= FAR).map(|rtt| {
                let rtt_ms = u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX);
                Inconclusive::PathUnknown { rtt_ms, next }
            }));
        };
        Ok(halves.is_held_back().then(|| Inconclusive::PathLimited {
            growth_percent: growth_percent(&halves),
            sockets: self.allocation.sockets(),
            next: self.wider_turn(capacity, &halves),
        }))
    }

    /// The turn with more sockets, if there may be more and the relay has another turn.
    fn wider_turn(&self, seen: Rate, halves: &Halves) -> Option<Turn> {
        let has_all = self.allocation.sockets() >= self.params.sockets;
        if has_all { None } else { self.turn.widened(seen, halves.widening()) }
    }
}

/// By how many percent more came back with all sockets, rounded.
#[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
#[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
fn growth_percent(halves: &Halves) -> u32 {
    ((halves.growth() - 1.0) * 100.0 + 0.5) as u32
}
