//! The load of each measurer: the greedy allocation of §4.2.

use crate::measurer_path::MeasurerPath;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::num::NonZeroU32;
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

/// The tolerance for a measurer's clock and rate limit: a share of its rate.
const SLACK: Duration = Duration::from_millis(100);

/// The excess that each socket may send beyond its rate: a TLS record.
const SLACK_PER_SOCKET_BYTES: u64 = 16_384;

/// One measurer's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The measurer.
    pub measurer: MeasurerId,
    /// *aᵢ*: its rate, over all its processes; never zero.
    pub rate: Rate,
    /// The number of its sockets, over all its processes; never zero.
    pub sockets: u32,
}

impl Assignment {
    /// The maximum number of bytes that can have returned by the end of a second, counted from zero, if it keeps to its
    /// assignment.
    ///
    /// This bounds the sum over all seconds so far. A single second has no bound: bytes that the relay delayed may
    /// return all at once.
    #[must_use]
    pub fn most_returned(&self, second: u32) -> u64 {
        let time = Duration::from_secs(u64::from(second) + 1) + SLACK;
        let records = u64::from(self.sockets).saturating_mul(SLACK_PER_SOCKET_BYTES);
        self.rate.bytes_in(time).saturating_add(records)
    }

    /// The part of that which counts in one second: what it can have sent in a second. So a measurer gains nothing by
    /// saving up [`most_returned`](Self::most_returned) for the seconds that decide. An honest measurer, which is
    /// assigned more than twice what the relay carries, loses nothing.
    #[must_use]
    pub fn most_counted(&self) -> u64 {
        self.most_returned(0)
    }

    /// Whether its count of returned bytes in a whole round of `seconds` is consistent with the relay's count of bytes
    /// sent to it.
    ///
    /// Bytes return only after they were sent. But the relay counts from the first cell of any measurer, and others may
    /// start some hundred milliseconds later: half a second's worth, or a twentieth, is allowed. At the end some bytes
    /// are still in flight: a second's worth of the assigned rate, and a fifth.
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
    /// The measurers that take part, most residual capacity first.
    pub assignments: Vec<Assignment>,
    /// The required capacity, *f·z₀*.
    pub needed: Rate,
    /// The team's residual capacity before the allocation.
    pub available: Rate,
}

/// One socket of a measurer in this number sends while only few circuits do.
///
/// A relay serves the circuit next that has sent least, but one whose rate is limited divides that among its links:
/// if others have *L* links, *k* links of a measurement get *k*/(*k*+*L*).
pub const FEW_SOCKETS_ONE_IN: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// The sockets of a measurer that send while only few circuits do.
#[must_use]
pub fn few_sockets(sockets: u32) -> u32 {
    (sockets / FEW_SOCKETS_ONE_IN).max(1)
}

impl Allocation {
    /// Σ*aᵢ*: the lesser of the required and the available capacity.
    #[must_use]
    pub fn total(&self) -> Rate {
        self.assignments.iter().map(|assignment| assignment.rate).sum()
    }

    /// Sockets over all measurers.
    #[must_use]
    pub fn sockets(&self) -> u32 {
        self.assignments.iter().map(|assignment| assignment.sockets).sum()
    }

    /// How many times as many sockets send as while [only few](few_sockets) do.
    #[must_use]
    pub(crate) fn times_few_sockets(&self) -> f64 {
        let few: u32 =
            self.assignments.iter().map(|assignment| few_sockets(assignment.sockets)).sum();
        f64::from(self.sockets()) / f64::from(few.max(1))
    }

    /// Whether at least a quarter of the sockets starts later if every other one of each measurer does. Then a path
    /// that limits the sockets lets a third more through in the second half.
    #[must_use]
    pub(crate) fn has_two_halves(&self) -> bool {
        let later: u32 = self.assignments.iter().map(|assignment| assignment.sockets / 2).sum();
        later.saturating_mul(4) >= self.sockets()
    }

    /// Redistributes the sockets by the demand of each path. A path of twice the length has twice the bytes in flight,
    /// and needs in proportion more sockets if it loses packets. Each socket's window shrinks with the square root of
    /// the loss (Mathis et al., 1997). `vantages` are by the measurers' places in the team. If a participant's
    /// round-trip time is unknown, nothing changes.
    #[must_use]
    pub(crate) fn with_sockets_by_path(mut self, vantages: &[MeasurerPath]) -> Self {
        let weight = |assignment: &Assignment| {
            let path = vantages.get(assignment.measurer.0)?.path;
            Some(need(assignment.rate, path.rtt?, path.loss_ppm))
        };
        let Some(weights) = self.assignments.iter().map(weight).collect::<Option<Vec<_>>>() else {
            return self;
        };
        let least = u32::try_from(self.assignments.len()).unwrap_or(u32::MAX).saturating_mul(2);
        let Some(spare) = self.sockets().checked_sub(least) else { return self };
        let mut weight_left: u128 = weights.iter().sum();
        let mut spare_left = u128::from(spare);
        for (assignment, weight) in self.assignments.iter_mut().zip(weights) {
            // Rounded, of the remainder, so that the last one gets the rest.
            let more = (spare_left * weight + weight_left / 2) / weight_left.max(1);
            assignment.sockets = 2 + u32::try_from(more).unwrap_or(u32::MAX);
            weight_left -= weight;
            spare_left -= more;
        }
        self
    }

    /// Whether the whole team was allocated, so that no allocation could be larger.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.available <= self.needed
    }

    /// The measurer at a place: in a team of the participants, in order, its number is this place.
    #[must_use]
    pub fn member(&self, place: MeasurerId) -> Option<MeasurerId> {
        self.assignments.get(place.0).map(|assignment| assignment.measurer)
    }

    /// A measurer's place among the participants.
    pub(crate) fn place(&self, measurer: MeasurerId) -> Option<usize> {
        self.assignments.iter().position(|assignment| assignment.measurer == measurer)
    }
}

/// Gives the measurer with the most residual capacity all it has left or what is still needed, and so on until Σ*aᵢ* =
/// `needed` or the team is exhausted (§4.2).
///
/// `residuals` holds what other concurrent measurements leave of each measurer of the team; of equals, the first comes
/// first. No other choice needs fewer measurers. The sockets are divided evenly among the participants, the remainder
/// among the first of them, at least one each (§4.1).
#[must_use]
pub fn allocate(needed: Rate, residuals: &[Rate], sockets: u32) -> Allocation {
    allocate_among(needed, residuals, &[], sockets, 1)
}

/// The relative number of sockets that a path needs at this rate.
fn need(rate: Rate, rtt: Duration, loss_ppm: Option<u32>) -> u128 {
    /// Shorter round trips count as this one.
    const NEAR: Duration = Duration::from_millis(1);
    /// Rarer losses are too few to be counted in a round. More frequent ones cannot be compensated by sockets.
    const RARE_PPM: u32 = 100;
    const FREQUENT_PPM: u32 = 10_000;
    let under_way = u128::from(rate.bytes_in(rtt.max(NEAR))).max(1);
    let loss_ppm = loss_ppm.unwrap_or(0).clamp(RARE_PPM, FREQUENT_PPM);
    // In thousandths.
    under_way * u128::from((u64::from(loss_ppm) * 10_000).isqrt())
}

/// A measurer that may take part.
#[derive(Clone, Copy)]
struct Candidate {
    place: usize,
    host: Option<u32>,
    /// Its residual capacity.
    residual: Rate,
    /// The part of that which its path is believed to carry.
    carried: Rate,
    /// Its allocated rate.
    rate: Rate,
}

/// Allocates among at least `measurers_min` measurers at different hosts, as far as possible. These measurers, most
/// residual capacity first, get equal shares where they can, before the first of them gets more.
///
/// No measurer is assigned more than its path was observed to carry
/// ([`PathSeen::asked_at_most`](crate::PathSeen::asked_at_most)), unless that is not enough. `vantages` are by places,
/// as `residuals`; missing ones are unknown.
#[must_use]
pub(crate) fn allocate_among(
    needed: Rate,
    residuals: &[Rate],
    vantages: &[MeasurerPath],
    sockets: u32,
    measurers_min: u32,
) -> Allocation {
    let candidate = |(place, residual): (usize, &Rate)| {
        let MeasurerPath { host, path } = vantages.get(place).copied().unwrap_or_default();
        let carried = path.asked_at_most().min(*residual);
        Candidate { place, host, residual: *residual, carried, rate: Rate::ZERO }
    };
    let mut team: Vec<Candidate> = residuals.iter().enumerate().map(candidate).collect();
    team.sort_by_key(|candidate| {
        (Reverse(candidate.carried), Reverse(candidate.residual), candidate.place)
    });
    spread_over_hosts(&mut team, measurers_min as usize);
    let even = Rate::from_bit_per_s(needed.as_bit_per_s().div_ceil(measurers_min.max(1).into()));
    let mut missing = needed;
    let (all, first) = (team.len(), measurers_min as usize);
    for (most, is_carried, measurers) in
        [(even, true, first), (Rate::MAX, true, all), (Rate::MAX, false, all)]
    {
        for candidate in team.iter_mut().take(measurers) {
            let left = if is_carried { candidate.carried } else { candidate.residual };
            let more = left.min(most).saturating_sub(candidate.rate).min(missing);
            missing = missing - more;
            candidate.rate = candidate.rate + more;
        }
    }
    let assignment = |candidate: &Candidate| {
        let (measurer, rate) = (MeasurerId(candidate.place), candidate.rate);
        (rate > Rate::ZERO).then_some(Assignment { measurer, rate, sockets: 1 })
    };
    let mut assignments: Vec<Assignment> = team.iter().filter_map(assignment).collect();
    let count = u32::try_from(assignments.len()).unwrap_or(u32::MAX).max(1);
    let (even, remainder) = (sockets / count, sockets % count);
    for (place, assignment) in (0u32..).zip(&mut assignments) {
        assignment.sockets = (even + u32::from(place < remainder)).max(1);
    }
    Allocation { assignments, needed, available: residuals.iter().copied().sum() }
}

/// Moves measurers at distinct hosts to the front, so that the first `first` are at different hosts, as far as others
/// have capacity.
fn spread_over_hosts(team: &mut Vec<Candidate>, first: usize) {
    for place in 1..first.min(team.len()) {
        let (chosen, rest) = team.split_at(place);
        let is_new = |candidate: &Candidate| {
            candidate.carried > Rate::ZERO
                && candidate
                    .host
                    .is_none_or(|host| chosen.iter().all(|other| other.host != Some(host)))
        };
        if let Some(found) = rest.iter().position(is_new) {
            let moved = team.remove(place + found);
            team.insert(place, moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurer_path::PathSeen;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::vec;

    fn bits(rates: &[u64]) -> Vec<Rate> {
        rates.iter().copied().map(Rate::from_bit_per_s).collect()
    }

    fn shares(allocation: &Allocation) -> Vec<(usize, u64, u32)> {
        let share = |a: &Assignment| (a.measurer.0, a.rate.as_bit_per_s(), a.sockets);
        allocation.assignments.iter().map(share).collect()
    }

    fn at(rtt_ms: u64, loss_ppm: u32) -> MeasurerPath {
        let rtt = Some(Duration::from_millis(rtt_ms));
        let path = PathSeen { rtt, loss_ppm: Some(loss_ppm), limit: None };
        MeasurerPath { host: None, path }
    }

    #[test]
    fn the_measurer_with_the_largest_residual_capacity_comes_first() {
        let allocation = allocate(Rate::from_bit_per_s(120), &bits(&[50, 100, 0, 60]), 5);
        assert_eq!(shares(&allocation), vec![(1, 100, 3), (3, 20, 2)]);
        assert!(!allocation.is_exhausted());
    }

    #[test]
    fn an_exhausted_team_gives_all_it_has() {
        let allocation = allocate(Rate::from_bit_per_s(1000), &bits(&[50, 100]), 160);
        assert_eq!(shares(&allocation), vec![(1, 100, 80), (0, 50, 80)]);
        assert!(allocation.is_exhausted() && allocation.total() < allocation.needed);
        assert_eq!(allocation.total(), Rate::from_bit_per_s(150));
    }

    #[test]
    fn a_team_that_is_just_large_enough_is_exhausted_but_not_short() {
        let allocation = allocate(Rate::from_bit_per_s(150), &bits(&[50, 100]), 160);
        assert!(allocation.is_exhausted() && allocation.total() == allocation.needed);
    }

    #[test]
    fn every_participant_has_a_socket_even_if_there_are_fewer_sockets() {
        let allocation = allocate(Rate::from_bit_per_s(9), &bits(&[3, 3, 3]), 2);
        assert_eq!(shares(&allocation), vec![(0, 3, 1), (1, 3, 1), (2, 3, 1)]);
    }

    #[test]
    fn every_participant_has_load() {
        assert!(allocate(Rate::ZERO, &bits(&[1]), 2).assignments.is_empty());
        assert!(allocate(Rate::MAX, &bits(&[0, 0]), 2).assignments.is_empty());
        assert!(allocate(Rate::MAX, &[], 2).assignments.is_empty());
    }

    #[test]
    fn two_measurers_take_part_if_two_are_required_and_available() {
        let among = |residuals: &[u64]| {
            shares(&allocate_among(Rate::from_bit_per_s(101), &bits(residuals), &[], 8, 2))
        };
        assert_eq!(among(&[500, 400]), vec![(0, 51, 4), (1, 50, 4)]);
        assert_eq!(among(&[500, 30, 20]), vec![(0, 71, 4), (1, 30, 4)], "the first gets the rest");
        assert_eq!(among(&[500, 0]), vec![(0, 101, 8)]);
        assert_eq!(among(&[40, 30, 20]), vec![(0, 40, 3), (1, 30, 3), (2, 20, 2)]);
    }

    #[test]
    fn two_measurers_are_at_different_hosts_if_there_are_two_hosts() {
        let at_hosts = |hosts: &[Option<u32>], residuals: &[u64], measurers_min| {
            let vantages: Vec<MeasurerPath> = hosts
                .iter()
                .map(|host| MeasurerPath { host: *host, ..MeasurerPath::default() })
                .collect();
            let needed = Rate::from_bit_per_s(100);
            let allocation = allocate_among(needed, &bits(residuals), &vantages, 8, measurers_min);
            allocation
                .assignments
                .iter()
                .map(|assignment| assignment.measurer.0)
                .collect::<Vec<_>>()
        };
        let (one, other) = (Some(7), Some(9));
        assert_eq!(at_hosts(&[one, one, other], &[500, 400, 300], 2), vec![0, 2]);
        assert_eq!(at_hosts(&[one, one, None], &[500, 400, 300], 2), vec![0, 2]);
        assert_eq!(at_hosts(&[None, None, other], &[500, 400, 300], 2), vec![0, 1]);
        assert_eq!(
            at_hosts(&[one, one, one], &[500, 400, 300], 2),
            vec![0, 1],
            "there is one host"
        );
        assert_eq!(
            at_hosts(&[one, one, other], &[500, 400, 0], 2),
            vec![0, 1],
            "the other host has no capacity left"
        );
        assert_eq!(at_hosts(&[one, one, other], &[500, 400, 300], 1), vec![0]);
    }

    #[test]
    fn a_measurer_limited_by_its_path_is_assigned_little_if_others_have_the_rest() {
        let limit =
            |bits: u64| PathSeen { limit: Some(Rate::from_bit_per_s(bits)), ..PathSeen::default() };
        let among = |residuals: &[u64], held: u64| {
            let first = MeasurerPath { host: None, path: limit(held) };
            let needed = Rate::from_bit_per_s(200);
            let allocation = allocate_among(needed, &bits(residuals), &[first], 8, 2);
            shares(&allocation).into_iter().map(|share| (share.0, share.1)).collect::<Vec<_>>()
        };
        assert_eq!(among(&[500, 400], 20), vec![(1, 175), (0, 25)]);
        assert_eq!(
            among(&[500, 400, 300], 20),
            vec![(1, 100), (2, 100)],
            "the two others have enough"
        );
        assert_eq!(among(&[500, 100], 20), vec![(1, 100), (0, 100)], "no other has capacity left");
        assert_eq!(among(&[500, 400], 900), vec![(0, 100), (1, 100)], "it was enough");
    }

    #[test]
    fn distant_and_lossy_paths_get_more_sockets() {
        let even = allocate_among(Rate::from_mbit_per_s(200.0), &bits(&[1 << 30; 2]), &[], 44, 2);
        let by = |vantages: &[MeasurerPath]| {
            let allocation = even.clone().with_sockets_by_path(vantages);
            allocation.assignments.iter().map(|assignment| assignment.sockets).collect::<Vec<_>>()
        };
        assert_eq!(by(&[at(20, 0), at(180, 0)]), vec![6, 38]);
        assert_eq!(by(&[at(0, 0), at(0, 0)]), vec![22, 22]);
        assert_eq!(
            by(&[at(20, 0), MeasurerPath::default()]),
            vec![22, 22],
            "one round trip is unknown"
        );
        assert_eq!(by(&[]), vec![22, 22]);
        // A hundred times the loss requires ten times the sockets. Losses rarer than one in ten thousand do not count.
        assert_eq!(by(&[at(20, 10_000), at(20, 99)]), vec![38, 6]);
        assert_eq!(by(&[at(20, 900_000), at(20, 0)]), vec![38, 6]);
        let few = allocate_among(Rate::from_mbit_per_s(200.0), &bits(&[1 << 30; 2]), &[], 3, 2);
        assert_eq!(
            few.clone().with_sockets_by_path(&[at(20, 0), at(180, 0)]),
            few,
            "at least two each"
        );
    }

    proptest! {
        #[test]
        fn distribution_by_path_keeps_the_number_of_sockets(
            team in vec((1u64..1 << 40, 0u64..400, 0u32..1_000_000), 1..8), sockets in 1u32..300,
        ) {
            let residuals: Vec<u64> = team.iter().map(|member| member.0).collect();
            let vantages: Vec<_> = team.iter().map(|member| at(member.1, member.2)).collect();
            let even = allocate(Rate::from_bit_per_s(1 << 41), &bits(&residuals), sockets);
            let spread = even.clone().with_sockets_by_path(&vantages);
            prop_assert_eq!(spread.sockets(), even.sockets());
            if even.sockets() as usize >= 2 * team.len() {
                prop_assert!(spread.assignments.iter().all(|assignment| assignment.sockets >= 2));
            }
        }

        #[test]
        fn shares_fill_the_need_and_never_exceed_what_is_left(
            needed in 0u64..500, residuals in vec(0u64..100, 0..8), sockets in 1u32..200,
            measurers_min in 0u32..4, seen in vec((0u32..3, prop::option::of(0u64..100)), 0..8),
        ) {
            let vantage = |(host, held): &(u32, Option<u64>)| {
                let limit = held.map(Rate::from_bit_per_s);
                MeasurerPath { host: Some(*host), path: PathSeen { limit, ..PathSeen::default() } }
            };
            let vantages: Vec<MeasurerPath> = seen.iter().map(vantage).collect();
            let needed_rate = Rate::from_bit_per_s(needed);
            let allocation =
                allocate_among(needed_rate, &bits(&residuals), &vantages, sockets, measurers_min);
            let available: u64 = residuals.iter().sum();
            prop_assert_eq!(allocation.total().as_bit_per_s(), needed.min(available));
            prop_assert_eq!(allocation.total() < allocation.needed, available < needed);
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
        fn no_smaller_group_of_measurers_would_suffice(
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
        fn equal_measurers_are_allocated_in_order(
            needed in 1u64..50, residual in 1u64..10, count in 1usize..8,
        ) {
            let team = vec![Rate::from_bit_per_s(residual); count];
            let allocation = allocate(Rate::from_bit_per_s(needed), &team, 160);
            let order: Vec<usize> = allocation.assignments.iter().map(|a| a.measurer.0).collect();
            prop_assert_eq!(order, (0..allocation.assignments.len()).collect::<Vec<_>>());
        }
    }
}
