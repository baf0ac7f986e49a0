//! Who loads the relay, and how much: the greedy allocation of §4.2.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A measurer, by its place in the team, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MeasurerId(pub usize);

impl fmt::Display for MeasurerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measurer {}", self.0)
    }
}

/// What a measurer's clock and its rate limit may be off: share of its rate.
const SLACK: Duration = Duration::from_millis(100);

/// What each of its sockets may send beyond its rate: a TLS record.
const SLACK_PER_SOCKET_BYTES: u64 = 16_384;

/// What one measurer has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Who.
    pub measurer: MeasurerId,
    /// *aᵢ*: how fast it sends, over all its processes; never zero.
    pub rate: Rate,
    /// How many sockets it opens, over all its processes; never zero.
    pub sockets: u32,
}

impl Assignment {
    /// What can have come back to it by the end of a second, counted from zero, if it keeps to its
    /// assignment: no more than it has sent.
    ///
    /// It is a bound on the sum over all seconds so far. Of a single second there is none: what the
    /// relay has held back for a while comes back all at once.
    #[must_use]
    pub fn most_returned(&self, second: u32) -> u64 {
        let time = Duration::from_secs(u64::from(second) + 1) + SLACK;
        let records = u64::from(self.sockets).saturating_mul(SLACK_PER_SOCKET_BYTES);
        self.rate.bytes_in(time).saturating_add(records)
    }

    /// What of that counts in one second: what it can have sent in a second. So nothing is gained by saving
    /// up what [`most_returned`](Self::most_returned) allows for the seconds that decide; and an honest
    /// measurer, which is assigned more than twice what the relay carries, loses nothing.
    #[must_use]
    pub fn most_counted(&self) -> u64 {
        self.most_returned(0)
    }

    /// Whether what it says that came back to it in a whole round of so many seconds can be what the relay says that it sent to
    /// it.
    ///
    /// Nothing comes back before it is sent. But the relay counts from the first cell that reaches it from any measurer, and
    /// others may begin some hundred milliseconds later: half a second's worth, or a twentieth. In the end something is
    /// still under way: a second's worth of what was ordered, and a fifth.
    #[must_use]
    pub fn agrees(&self, returned_bytes: u64, sent_bytes: u64, seconds: u32) -> bool {
        let records = u64::from(self.sockets).saturating_mul(SLACK_PER_SOCKET_BYTES);
        let late = (sent_bytes / 20).max(sent_bytes / (2 * u64::from(seconds.max(1))));
        returned_bytes <= sent_bytes.saturating_add(late).saturating_add(records)
            && returned_bytes.saturating_add(self.most_counted()) >= sent_bytes / 5 * 4
    }
}

/// Shares of a team's capacity, for one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Those who take part, most residual capacity first.
    pub assignments: Vec<Assignment>,
    /// What was asked for, *f·z₀*.
    pub needed: Rate,
    /// What the team had left before.
    pub available: Rate,
}

impl Allocation {
    /// Σ*aᵢ*: what was given; the lesser of what was needed and what was available.
    #[must_use]
    pub fn total(&self) -> Rate {
        self.assignments.iter().map(|assignment| assignment.rate).sum()
    }

    /// Sockets over all measurers.
    #[must_use]
    pub fn sockets(&self) -> u32 {
        self.assignments.iter().map(|assignment| assignment.sockets).sum()
    }

    /// Whether a fair part of the sockets begins later if every other one of each measurer does: at least a
    /// quarter. Then a path that holds back lets a third more through in the second half.
    #[must_use]
    pub(crate) fn has_two_halves(&self) -> bool {
        let later: u32 = self.assignments.iter().map(|assignment| assignment.sockets / 2).sum();
        later.saturating_mul(4) >= self.sockets()
    }

    /// The same with as many sockets, shared out by rate and distance: who is twice as far has twice as much under
    /// way, and needs as many more sockets where they lose packets. `rtts` holds the round trips that are known, by
    /// the measurers' places in the team; unless those of all who take part are, nothing changes.
    #[must_use]
    pub(crate) fn with_sockets_by_distance(mut self, rtts: &[Option<Duration>]) -> Self {
        /// Nearer than this all are the same.
        const NEAR: Duration = Duration::from_millis(1);
        let under_way = |it: &Assignment| {
            let rtt = rtts.get(it.measurer.0).copied().flatten()?;
            Some(u128::from(it.rate.bytes_in(rtt.max(NEAR))).max(1))
        };
        let Some(weights) = self.assignments.iter().map(under_way).collect::<Option<Vec<_>>>()
        else {
            return self;
        };
        let least = u32::try_from(self.assignments.len()).unwrap_or(u32::MAX).saturating_mul(2);
        let Some(spare) = self.sockets().checked_sub(least) else { return self };
        let mut weight_left: u128 = weights.iter().sum();
        let mut spare_left = u128::from(spare);
        for (assignment, weight) in self.assignments.iter_mut().zip(weights) {
            // Rounded, of what is left, so that the last one has all the rest.
            let more = (spare_left * weight + weight_left / 2) / weight_left.max(1);
            assignment.sockets = 2 + u32::try_from(more).unwrap_or(u32::MAX);
            weight_left -= weight;
            spare_left -= more;
        }
        self
    }

    /// Whether less was given than needed: Σ*aᵢ* < *f·z₀*.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.available < self.needed
    }

    /// Whether the team has nothing left, so that no other allocation could give more.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.available <= self.needed
    }

    /// The measurer at a place: in a team that was made of those who take part, in their order, it has
    /// this place for its number.
    #[must_use]
    pub fn member(&self, place: MeasurerId) -> Option<MeasurerId> {
        self.assignments.get(place.0).map(|assignment| assignment.measurer)
    }

    /// Where a measurer stands among those who take part.
    pub(crate) fn place(&self, measurer: MeasurerId) -> Option<usize> {
        self.assignments.iter().position(|assignment| assignment.measurer == measurer)
    }
}

/// Gives the measurer with most residual capacity all it has left or what is still needed, and so
/// on until Σ*aᵢ* = `needed` or the team is exhausted (§4.2).
///
/// `residuals` holds what each measurer of the team has left beside other measurements that run
/// at the same time; of equals, the first comes first. No other choice needs fewer measurers.
/// The sockets are split evenly among those who take part, the remainder among the first of them,
/// at least one each (§4.1).
#[must_use]
pub fn allocate(needed: Rate, residuals: &[Rate], sockets: u32) -> Allocation {
    allocate_among(needed, residuals, sockets, 1)
}

/// The same among at least so many measurers, if so many have anything left: that many, most residual
/// capacity first, have an even part each as far as they can, before the first of them is given more.
#[must_use]
pub(crate) fn allocate_among(
    needed: Rate,
    residuals: &[Rate],
    sockets: u32,
    measurers_min: u32,
) -> Allocation {
    let mut team: Vec<(usize, Rate)> = residuals.iter().copied().enumerate().collect();
    team.sort_by_key(|(index, residual)| (Reverse(*residual), *index));
    let even = Rate::from_bit_per_s(needed.as_bit_per_s().div_ceil(measurers_min.max(1).into()));
    let mut missing = needed;
    let mut rates = vec![Rate::ZERO; team.len()];
    for (most, measurers) in [(even, measurers_min as usize), (Rate::MAX, team.len())] {
        for ((_, residual), rate) in team.iter().zip(&mut rates).take(measurers) {
            let more = (*residual).min(most).saturating_sub(*rate).min(missing);
            missing = missing - more;
            *rate = *rate + more;
        }
    }
    let assignment = |((index, _), rate): (&(usize, Rate), Rate)| {
        let measurer = MeasurerId(*index);
        (rate > Rate::ZERO).then_some(Assignment { measurer, rate, sockets: 1 })
    };
    let mut assignments: Vec<Assignment> = team.iter().zip(rates).filter_map(assignment).collect();
    let count = u32::try_from(assignments.len()).unwrap_or(u32::MAX).max(1);
    let (even, remainder) = (sockets / count, sockets % count);
    for (place, assignment) in (0u32..).zip(&mut assignments) {
        assignment.sockets = (even + u32::from(place < remainder)).max(1);
    }
    Allocation { assignments, needed, available: residuals.iter().copied().sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn bits(rates: &[u64]) -> Vec<Rate> {
        rates.iter().copied().map(Rate::from_bit_per_s).collect()
    }

    fn shares(allocation: &Allocation) -> Vec<(usize, u64, u32)> {
        let share = |a: &Assignment| (a.measurer.0, a.rate.as_bit_per_s(), a.sockets);
        allocation.assignments.iter().map(share).collect()
    }

    #[test]
    fn the_measurer_with_most_left_comes_first() {
        let allocation = allocate(Rate::from_bit_per_s(120), &bits(&[50, 100, 0, 60]), 5);
        assert_eq!(shares(&allocation), vec![(1, 100, 3), (3, 20, 2)]);
        assert!(!allocation.is_exhausted() && !allocation.is_short());
    }

    #[test]
    fn an_exhausted_team_gives_all_it_has() {
        let allocation = allocate(Rate::from_bit_per_s(1000), &bits(&[50, 100]), 160);
        assert_eq!(shares(&allocation), vec![(1, 100, 80), (0, 50, 80)]);
        assert!(allocation.is_exhausted() && allocation.is_short());
        assert_eq!(allocation.total(), Rate::from_bit_per_s(150));
    }

    #[test]
    fn a_team_that_is_just_large_enough_is_exhausted_but_not_short() {
        let allocation = allocate(Rate::from_bit_per_s(150), &bits(&[50, 100]), 160);
        assert!(allocation.is_exhausted() && !allocation.is_short());
    }

    #[test]
    fn every_participant_has_a_socket_even_if_there_are_fewer_sockets() {
        let allocation = allocate(Rate::from_bit_per_s(9), &bits(&[3, 3, 3]), 2);
        assert_eq!(shares(&allocation), vec![(0, 3, 1), (1, 3, 1), (2, 3, 1)]);
    }

    #[test]
    fn nobody_has_nothing_to_do() {
        assert!(allocate(Rate::ZERO, &bits(&[1]), 2).assignments.is_empty());
        assert!(allocate(Rate::MAX, &bits(&[0, 0]), 2).assignments.is_empty());
        assert!(allocate(Rate::MAX, &[], 2).assignments.is_empty());
    }

    #[test]
    fn two_measurers_take_part_where_one_would_do_if_there_are_two() {
        let among = |residuals: &[u64]| {
            shares(&allocate_among(Rate::from_bit_per_s(101), &bits(residuals), 8, 2))
        };
        assert_eq!(among(&[500, 400]), vec![(0, 51, 4), (1, 50, 4)]);
        assert_eq!(among(&[500, 30, 20]), vec![(0, 71, 4), (1, 30, 4)], "the first does the rest");
        assert_eq!(among(&[500, 0]), vec![(0, 101, 8)]);
        assert_eq!(among(&[40, 30, 20]), vec![(0, 40, 3), (1, 30, 3), (2, 20, 2)]);
    }

    #[test]
    fn who_is_far_has_more_of_the_sockets() {
        let even = allocate_among(Rate::from_mbit_per_s(200.0), &bits(&[1 << 30; 2]), 44, 2);
        let ms = |ms| Some(Duration::from_millis(ms));
        let by = |rtts: &[Option<Duration>]| {
            let allocation = even.clone().with_sockets_by_distance(rtts);
            allocation.assignments.iter().map(|it| it.sockets).collect::<Vec<_>>()
        };
        assert_eq!(by(&[ms(20), ms(180)]), vec![6, 38]);
        assert_eq!(by(&[ms(0), ms(0)]), vec![22, 22]);
        assert_eq!(by(&[ms(20), None]), vec![22, 22], "not all are known");
        assert_eq!(by(&[]), vec![22, 22]);
        let few = allocate_among(Rate::from_mbit_per_s(200.0), &bits(&[1 << 30; 2]), 3, 2);
        assert_eq!(
            few.clone().with_sockets_by_distance(&[ms(20), ms(180)]),
            few,
            "two each at least"
        );
    }

    proptest! {
        #[test]
        fn no_socket_is_lost_where_they_are_shared_out_by_distance(
            team in vec((1u64..1 << 40, 0u64..400), 1..8), sockets in 1u32..300,
        ) {
            let residuals: Vec<u64> = team.iter().map(|it| it.0).collect();
            let rtts: Vec<_> = team.iter().map(|it| Some(Duration::from_millis(it.1))).collect();
            let even = allocate(Rate::from_bit_per_s(1 << 41), &bits(&residuals), sockets);
            let spread = even.clone().with_sockets_by_distance(&rtts);
            prop_assert_eq!(spread.sockets(), even.sockets());
            if even.sockets() as usize >= 2 * team.len() {
                prop_assert!(spread.assignments.iter().all(|it| it.sockets >= 2));
            }
        }

        #[test]
        fn shares_fill_the_need_and_never_exceed_what_is_left(
            needed in 0u64..500, residuals in vec(0u64..100, 0..8), sockets in 1u32..200,
            measurers_min in 0u32..4,
        ) {
            let needed_rate = Rate::from_bit_per_s(needed);
            let allocation =
                allocate_among(needed_rate, &bits(&residuals), sockets, measurers_min);
            let available: u64 = residuals.iter().sum();
            prop_assert_eq!(allocation.total().as_bit_per_s(), needed.min(available));
            prop_assert_eq!(allocation.is_short(), available < needed);
            for (index, bits, sockets) in shares(&allocation) {
                prop_assert!(bits > 0 && bits <= residuals[index] && sockets > 0);
            }
            let count = u32::try_from(allocation.assignments.len()).unwrap();
            if count > 0 {
                prop_assert_eq!(allocation.sockets(), sockets.max(count));
            }
            let most = allocation.assignments.iter().map(|a| a.sockets).max();
            let least = allocation.assignments.iter().map(|a| a.sockets).min();
            prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1, "uneven sockets");
        }

        #[test]
        fn no_smaller_group_of_measurers_would_do(
            needed in 1u64..500, residuals in vec(0u64..100, 1..8),
        ) {
            let allocation = allocate(Rate::from_bit_per_s(needed), &bits(&residuals), 160);
            let given = allocation.total().as_bit_per_s();
            let fewest = (0u32..1 << residuals.len())
                .filter(|set| {
                    let members = residuals.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
                    members.map(|(_, residual)| residual).sum::<u64>() >= given
                })
                .map(u32::count_ones)
                .min();
            prop_assert_eq!(Some(u32::try_from(allocation.assignments.len()).unwrap()), fewest);
        }

        #[test]
        fn of_equals_the_first_comes_first(
            needed in 1u64..50, residual in 1u64..10, count in 1usize..8,
        ) {
            let team = vec![Rate::from_bit_per_s(residual); count];
            let allocation = allocate(Rate::from_bit_per_s(needed), &team, 160);
            let order: Vec<usize> = allocation.assignments.iter().map(|a| a.measurer.0).collect();
            prop_assert_eq!(order, (0..allocation.assignments.len()).collect::<Vec<_>>());
        }
    }
}
