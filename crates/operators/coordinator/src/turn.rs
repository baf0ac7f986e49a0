//! When a relay is measured once more, and with what guess (§4.2).

use crate::allocation::{Allocation, allocate_among};
use crate::measurer_path::MeasurerPath;
use crate::params::Params;
use onion::Rate;
use serde::{Deserialize, Serialize};

/// The default number of rounds that a participating relay allows a coordinator in a period (proposal 316). Each order
/// that the relay accepted counts, even if its round failed later.
pub const ROUNDS_ALLOWED: u32 = 2;

/// One round of a relay's measurement, of the rounds that it may have.
///
/// Only the methods of this type lead from one turn to the next, both in a [`Measurement`](crate::Measurement), which
/// has its team for all rounds, and in a [`Campaign`](crate::Campaign), which gives each round its own share of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// *z₀*: the capacity that the round expects.
    pub guess: Rate,
    /// The round, counted from one.
    pub round: u32,
    /// The number of rounds that the relay may have, at least.
    pub rounds_max: u32,
    /// The number of sockets, as a multiple of the first round's, up to [`Params::sockets`].
    ///
    /// [`Params::sockets`]: crate::Params::sockets
    #[serde(default = "once")]
    pub widening: u32,
    /// The minimum number of measurers, if the team has them. A limit that only one of them meets is not the relay's.
    #[serde(default = "once")]
    pub measurers_min: u32,
    /// The minimum number of sockets of the first round, as an earlier period needed them
    /// ([`PastEstimate::sockets`](crate::PastEstimate::sockets)).
    #[serde(default)]
    pub sockets_min: u32,
    /// The most that the relay forwarded in a complete earlier round. More sockets can slow a relay down, but do not
    /// disprove that result.
    #[serde(default = "nothing")]
    pub passed: Rate,
    /// The relay already declined this turn once in this period.
    #[serde(default)]
    pub is_after_decline: bool,
    /// The largest estimate of recent measurements, if a result far below it may be confirmed at other secret times of the
    /// period; zero if not.
    #[serde(default = "nothing")]
    pub recent: Rate,
    /// The number of turns that confirm such a result, this one included.
    #[serde(default)]
    pub confirmations: u32,
}

/// A result below this share of the recent ones is confirmed by other measurements.
const FALL_MAX: f64 = 2.0 / 3.0;

/// The number of measurements that confirm a fall. All of them happen at secret times that are drawn at random, so a
/// client that starves the relay has to do so all day.
const CONFIRMATIONS_MAX: u32 = 2;

const fn nothing() -> Rate {
    Rate::ZERO
}

const fn once() -> u32 {
    1
}

impl Attempt {
    /// The first of at most `rounds_max` turns, at least one. `guess` is the result of
    /// [`Expectations::first_guess`](crate::Expectations::first_guess).
    #[must_use]
    pub const fn first(guess: Rate, rounds_max: u32) -> Self {
        let rounds_max = if rounds_max == 0 { 1 } else { rounds_max };
        Self {
            guess,
            round: 1,
            rounds_max,
            widening: 1,
            measurers_min: 1,
            sockets_min: 0,
            passed: Rate::ZERO,
            is_after_decline: false,
            recent: Rate::ZERO,
            confirmations: 0,
        }
    }

    /// Sets the largest recent estimate. Only where turns have secret times to which another can be added.
    #[must_use]
    pub const fn with_recent(self, recent: Rate) -> Self {
        Self { recent, ..self }
    }

    /// Whether all that the relay forwarded in this turn and those before it is far below its recent estimates.
    #[must_use]
    pub(crate) fn is_below_recent(&self) -> bool {
        self.passed < self.recent.scaled(FALL_MAX)
    }

    /// The turn at another time that confirms a fall below the recent estimates. The largest result is used. `None` after
    /// the last, or if there is no other time.
    #[must_use]
    pub(crate) fn confirming(self) -> Option<Self> {
        if self.recent == Rate::ZERO || self.confirmations >= CONFIRMATIONS_MAX {
            return None;
        }
        let confirmations = self.confirmations + 1;
        self.followed_by(self.guess).map(|next| Self { confirmations, ..next })
    }

    /// Sets the minimum number of sockets.
    #[must_use]
    pub const fn with_sockets(self, sockets_min: u32) -> Self {
        Self { sockets_min, ..self }
    }

    /// Whether no other turn may follow.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.round >= self.rounds_max
    }

    /// The turn after an inconclusive one in which the relay forwarded `seen`: *z₀* ← max(*z*, 2·*z₀*). `None` after
    /// the last.
    #[must_use]
    pub fn enlarged(self, seen: Rate) -> Option<Self> {
        self.followed_by(seen.max(self.guess + self.guess))
    }

    /// The turn after one that the path held back, with `factor` times the sockets. The guess is the same, or `seen` if
    /// that is more. `None` after the last.
    #[must_use]
    pub fn widened(self, seen: Rate, factor: u32) -> Option<Self> {
        let widening = self.widening.saturating_mul(factor);
        self.followed_by(self.guess.max(seen)).map(|next| Self { widening, ..next })
    }

    /// The turn after one that a measurer's own limit may have held back: with at least two measurers. `None` after the
    /// last.
    #[must_use]
    pub fn compared(self, seen: Rate) -> Option<Self> {
        self.followed_by(self.guess.max(seen)).map(Self::by_two)
    }

    /// Requires at least two measurers.
    #[must_use]
    pub(crate) fn by_two(self) -> Self {
        Self { measurers_min: self.measurers_min.max(2), ..self }
    }

    /// The number of its sockets, given that of a first turn and the maximum.
    #[must_use]
    pub fn sockets(&self, first: u32, most: u32) -> u32 {
        first.max(self.sockets_min).saturating_mul(self.widening).min(most).max(1)
    }

    /// Whether every other socket starts in the middle of the round.
    #[must_use]
    pub const fn has_halves(&self, params: &Params) -> bool {
        params.path.probes || self.widening > 1 || self.sockets_min > params.path.first_sockets
    }

    /// Allocates the load, given what each measurer has left for the relay. A round with halves has at least two
    /// measurers, since a bottleneck of one path shows only in comparison with another. Each has at least two sockets
    /// where possible, since a single one has no half. `vantages` are the team's paths, as far as they are known. The
    /// two measurers are at different hosts, one that its path held back is assigned less, and a distant one gets more
    /// of the sockets.
    #[must_use]
    pub fn allocation(
        &self,
        params: &Params,
        residuals: &[Rate],
        vantages: &[MeasurerPath],
    ) -> Allocation {
        let needed = self.guess.scaled(params.excess_factor());
        let sockets = self.sockets(params.path.first_sockets, params.sockets);
        let has_halves = self.has_halves(params);
        let measurers_min = self.measurers_min.max(if has_halves { 2 } else { 1 });
        let allocate = |sockets| {
            let even = allocate_among(needed, residuals, vantages, sockets, measurers_min);
            even.with_sockets_by_path(vantages)
        };
        let allocation = allocate(sockets);
        let two_each = u32::try_from(2 * allocation.assignments.len()).unwrap_or(u32::MAX);
        if !has_halves || sockets >= two_each {
            return allocation;
        }
        allocate(two_each.min(params.sockets))
    }

    /// Repeats a turn that shows nothing about the relay, since a measurer failed. `None` after the last.
    #[must_use]
    pub fn repeated(self) -> Option<Self> {
        self.followed_by(self.guess)
    }

    /// Repeats a turn that the relay declined, in this period and at a time that the relay does not choose. `None` if
    /// the relay has declined it before, or has already been measured in this period.
    #[must_use]
    pub const fn after_decline(self) -> Option<Self> {
        if self.is_after_decline || self.round > 1 {
            return None;
        }
        Some(Self { is_after_decline: true, ..self })
    }

    /// Another measurement in the same period, independent of the previous one, whose result is dropped. `None` after
    /// the last.
    #[must_use]
    pub fn afresh(self) -> Option<Self> {
        let next = self.followed_by(self.guess)?;
        // A fall that was confirmed in this period needs no other confirmation.
        let recent = if self.confirmations > 0 { Rate::ZERO } else { self.recent };
        Some(Self { passed: Rate::ZERO, is_after_decline: false, recent, confirmations: 0, ..next })
    }

    fn followed_by(self, guess: Rate) -> Option<Self> {
        (!self.is_last()).then_some(Self { guess, round: self.round + 1, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_relay_has_at_most_its_limit_of_rounds() {
        let guess = Rate::from_bit_per_s(10);
        for (rounds_max, rounds) in [(0, 1), (1, 1), (2, 2), (12, 12)] {
            let turns = |next: fn(Attempt) -> Option<Attempt>| {
                core::iter::successors(Some(Attempt::first(guess, rounds_max)), |turn| next(*turn))
                    .count()
            };
            assert_eq!(turns(|turn| turn.enlarged(Rate::ZERO)), rounds);
            assert_eq!(
                turns(Attempt::repeated),
                rounds,
                "a turn that a measurer failed counts too"
            );
        }
    }

    #[test]
    fn the_sockets_of_an_earlier_period_are_used_from_the_first_round() {
        let first = Attempt::first(Rate::from_bit_per_s(10), 3);
        assert_eq!((first.sockets(8, 160), first.with_sockets(4).sockets(8, 160)), (8, 8));
        let wide = first.with_sockets(60);
        assert_eq!((wide.sockets(8, 160), wide.sockets(8, 40)), (60, 40));
        let wider = wide.widened(Rate::ZERO, 2).expect("three rounds");
        assert_eq!(wider.sockets(8, 160), 120);
        let near = Params::default();
        assert!(!near.path.probes && !first.has_halves(&near));
        let needed = near.path.first_sockets + 1;
        assert!(
            first.with_sockets(needed).has_halves(&near),
            "the number can turn out to be too large"
        );
    }

    proptest! {
        /// Any capacity is reached in a logarithmic number of rounds.
        #[test]
        fn a_guess_at_least_doubles_and_is_never_below_the_result(
            guess in 1u64.., seen in 0u64.., rounds_max in 2u32..,
        ) {
            let (guess, seen) = (Rate::from_bit_per_s(guess), Rate::from_bit_per_s(seen));
            let first = Attempt::first(guess, rounds_max);
            let next = first.enlarged(seen).expect("two rounds or more");
            prop_assert_eq!(next.guess, (guess + guess).max(seen));
            prop_assert_eq!((next.round, next.rounds_max), (2, rounds_max));
            prop_assert_eq!(first.repeated().map(|repeated| repeated.guess), Some(guess));
        }
    }
}
