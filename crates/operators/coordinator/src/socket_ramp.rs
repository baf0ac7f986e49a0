//! Detects whether the path to a relay, and not the relay, limits a round.

use crate::second::SecondTotals;
use crate::stats::median;
use alloc::vec::Vec;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// Growth up to which the path is assumed not to matter.
///
/// Let *P(n)* be what *n* sockets could carry if the relay were infinitely fast, and *R* what the relay can
/// do; a half then carries min(*R*, *P*). Flows that lose packets independently of each other, or that
/// their windows hold back, carry twice as much if there are twice as many: *P(n)* = 2·*P(n/2)*. So a growth
/// *g* is 2 where the path alone was the limit, and between 1 and 2 where it was so in the first half only.
/// There *R* ≤ *g*·*z* even if all seconds that count were the first half's: with *g* ≤ 1.05 the estimate
/// is at most 4.8 % too low, and every path that could have made it worse shows itself by more growth.
/// A bottleneck that all flows share does not grow either: it is a link, the relay's own if all measurers meet it.
const GROWTH_MAX: f64 = 1.05;

/// The maximum ratio of the rates at both ends of the first half, and of the first half to the second.
///
/// Growth compares two times, and is meaningless if the path changed between them. It changes while flows are still
/// slowing down from slow start: that ends with the first lost packet, at windows that may be many times those that the
/// path's loss sustains, and each loss only halves them. Measured at 300 ms, 0.1 % and Reno: 252 Mbit/s with half of
/// the sockets, falling to 80 within eight seconds, and no more with all of them. It also changes if slow start ended
/// too early, and windows grow by one segment a round trip: at 0.02 % from 62 to 171 within six seconds, then 106 with
/// twice the sockets. Or the rate falls between the halves: 150 with half of the sockets for thirteen seconds, then 120
/// with all. A relay's limit causes no such change, and twice the sockets cost C tor less than this.
const CHANGE_MAX: f64 = 1.10;

/// From this round trip on a path can limit a round that cannot show it. On shorter paths even the fewest sockets carry
/// a gigabit per second at 1 % loss.
pub const FAR: Duration = Duration::from_millis(2);

/// The minimum number of seconds on each side.
const SECONDS_MIN: usize = 2;

/// The start of a round's second half of sockets, and of the seconds of each half that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Seconds of load before those that count.
    pub lead_s: u32,
    /// The second in which every other socket started; `None` if all started at once.
    pub held_back_s: Option<u32>,
    /// Seconds, of the first ones, in which only few circuits sent ([`PathParams::few_circuits_s`](crate::PathParams)).
    #[serde(default)]
    pub few_circuits_s: u32,
}

/// The rates over few circuits and over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompetitionTest {
    /// The median second over few circuits.
    pub few: Rate,
    /// The median second over all of them.
    pub all: Rate,
}

/// The maximum ratio of the rate over all circuits to that over few of them at which both are the same relay's limit.
///
/// Tor's scheduler serves the circuit next that has sent least (EWMA), over all links with KIST. So circuits that always
/// have cells get equal shares of a relay of capacity *C*: *k* circuits among *N* others get *C*·*k*/(*k*+*N*). A relay
/// whose rate is limited divides it among links in the same way. With *F* times as many circuits or links, the rate grows
/// by *g* = (*k*+*N*)·*F*/(*F*·*k*+*N*), so the measurement's share over all of them is 1 − (*g*−1)/(*F*−1). There are at
/// least 5.3 times as many circuits ([`Load::plan`](../measurer/plan/struct.Load.html)) and, with four sockets or more of
/// each measurer, four times as many sockets: a growth of 1.25 is a share of 0.92 or more.
const COMPETITION_MAX: f64 = 1.25;

/// The maximum ratio of the rate over few circuits to that over all of them: the relay has shown that it can do more than the estimate,
/// of which competition may take no more than [`COMPETITION_UNSEEN`].
const FALL_MAX: f64 = 1.0 / (1.0 - COMPETITION_UNSEEN);

/// What competition may take without being seen.
const COMPETITION_UNSEEN: f64 = 0.1;

impl CompetitionTest {
    /// Whether others had a share of the relay that more circuits and sockets of the measurement got: `times` as many
    /// sockets. If that is nearly as many, only circuits show it.
    #[must_use]
    pub fn is_contended(&self, times: f64) -> bool {
        let growth_max = if times < 1.5 {
            COMPETITION_MAX
        } else {
            COMPETITION_MAX.min(1.0 + COMPETITION_UNSEEN * (times - 1.0))
        };
        quotient(self.all, self.few) > growth_max
    }

    /// Whether more circuits got less: the relay could do more than the estimate.
    #[must_use]
    pub fn has_fallen(&self) -> bool {
        quotient(self.few, self.all) > FALL_MAX
    }
}

/// The rates with half of the sockets, and with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRampTest {
    /// The median second with half of them.
    pub half: Rate,
    /// The median second with all.
    pub all: Rate,
    /// The median second of the beginning of the first half and of its end; equal if it is too short.
    pub early_and_late: (Rate, Rate),
}

impl Schedule {
    /// All sockets start at once, and all seconds count.
    pub const PLAIN: Self = Self { lead_s: 0, held_back_s: None, few_circuits_s: 0 };

    /// Whether a second counts for the estimate.
    #[must_use]
    pub const fn counts(&self, second: u32) -> bool {
        second >= self.lead_s
    }

    /// The rates over few circuits, and over all: `total` is the sum of a second, if all have reported it. `None` if all
    /// circuits started at once. The first second does not count: it has the burst of a rate-limited relay.
    #[must_use]
    pub fn competition(
        &self,
        total: impl Fn(u32) -> Option<u64>,
        counted: &[SecondTotals],
    ) -> Option<CompetitionTest> {
        let median_of = |totals: &mut Vec<u64>| {
            totals.sort_unstable();
            median(totals).map(Rate::from_byte_per_s)
        };
        let few = median_of(&mut (1..self.few_circuits_s).filter_map(total).collect())?;
        let all = median_of(&mut counted.iter().map(SecondTotals::total).collect())?;
        Some(CompetitionTest { few, all })
    }

    /// The halves of a round; `None` if all sockets started at once, or if one of the halves is too short. The second
    /// half needs a slow start like the first.
    #[must_use]
    pub fn halves(&self, seconds: &[SecondTotals]) -> Option<SocketRampTest> {
        let turn = self.held_back_s?;
        let median_of = |from: u32, to: u32| {
            let within = seconds.iter().filter(|second| (from..to).contains(&second.second));
            let mut totals: Vec<u64> = within.map(SecondTotals::total).collect();
            totals.sort_unstable();
            if totals.len() < SECONDS_MIN { None } else { median(&totals) }
        };
        let end = seconds.last()?.second.saturating_add(1);
        // A short half gives up no more than half of itself to slow start.
        let slow_start = self.lead_s.min(end.saturating_sub(turn) / 2);
        let half = median_of(self.lead_s, turn)?;
        let all = median_of(turn.saturating_add(slow_start), u32::MAX)?;
        let middle = self.lead_s.midpoint(turn);
        let early_and_late = median_of(self.lead_s, middle).zip(median_of(middle, turn));
        let early_and_late = early_and_late.unwrap_or((half, half));
        let rate = Rate::from_byte_per_s;
        Some(SocketRampTest {
            half: rate(half),
            all: rate(all),
            early_and_late: (rate(early_and_late.0), rate(early_and_late.1)),
        })
    }
}

impl SocketRampTest {
    /// The ratio of the rate with all sockets to that with half; 1 if nothing came back.
    #[must_use]
    pub fn growth(&self) -> f64 {
        if self.all == Rate::from_bit_per_s(0) { 1.0 } else { quotient(self.all, self.half) }
    }

    /// The larger of two ratios: that of both ends of the first half, and that of the first half to the second; 1 if
    /// nothing came back.
    #[must_use]
    pub fn change(&self) -> f64 {
        let (early, late) = self.early_and_late;
        if self.half.max(early).max(late) == Rate::from_bit_per_s(0) {
            return 1.0;
        }
        let within = quotient(early, late).max(quotient(late, early));
        within.max(quotient(self.half, self.all))
    }

    /// Whether the path had not settled when the halves were compared.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.change() > CHANGE_MAX
    }

    /// Whether the growth with all sockets shows that the path limited the others.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.growth() > GROWTH_MAX
    }

    /// The factor for the next round's number of sockets: the smallest with which its first half would not be limited,
    /// by this round's results.
    #[must_use]
    pub fn widening(&self) -> u32 {
        // With full growth the limit is unknown; with less, all of these sockets have reached the relay's limit.
        if self.growth().max(self.change()) > 1.7 { 4 } else { 2 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn quotient(one: Rate, other: Rate) -> f64 {
    one.as_byte_per_s() as f64 / (other.as_byte_per_s() as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(rates: impl IntoIterator<Item = u64>) -> Vec<SecondTotals> {
        let total = |(second, bytes)| SecondTotals::new(second, bytes, None, 0.25);
        (0..).zip(rates).map(total).collect()
    }

    const PROBING: Schedule = Schedule { lead_s: 2, held_back_s: Some(7), few_circuits_s: 0 };

    #[test]
    fn slow_start_counts_in_neither_half() {
        let rates = [1, 2, 50, 50, 50, 50, 50, 60, 70, 100, 100, 100];
        let halves = PROBING.halves(&seconds(rates)).expect("long enough");
        assert_eq!((halves.half.as_byte_per_s(), halves.all.as_byte_per_s()), (50, 100));
        assert!(halves.is_held_back());
        assert_eq!(halves.widening(), 4);
    }

    #[test]
    fn a_round_that_is_too_short_or_has_no_halves_has_no_result() {
        let all = seconds([9; 10]);
        assert_eq!(PROBING.halves(&all[..9]), None, "one second of the second half");
        assert!(PROBING.halves(&all).is_some());
        assert_eq!(Schedule::PLAIN.halves(&all), None);
        let far = Schedule { lead_s: 6, held_back_s: Some(10), few_circuits_s: 0 };
        let halves = far.halves(&seconds([0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 6, 6, 9, 9]));
        assert_eq!(halves.map(|half| half.widening()), Some(4), "two of four seconds are left");
    }

    /// Measured with C tor limited to 250 Mbit/s, 200 ms away, with a loss of 0.02 %.
    #[test]
    fn flows_that_slow_down_after_slow_start_are_not_taken_for_a_relays_limit() {
        let rates =
            [1, 1, 1, 1, 252, 203, 174, 109, 100, 96, 88, 80, 82, 92, 100, 133, 121, 93, 83, 86];
        let schedule = Schedule { lead_s: 4, held_back_s: Some(12), few_circuits_s: 0 };
        let halves = schedule.halves(&seconds(rates)).expect("long enough");
        assert!(!halves.is_held_back() && halves.is_settling(), "{halves:?}");
        // The same for flows that slow start left too low, or that fall between the halves: at 300 ms, 0.02 %.
        let rates = [
            1, 1, 1, 1, 61, 85, 97, 105, 122, 171, 134, 100, 116, 116, 106, 113, 122, 99, 102, 110,
        ];
        let halves = schedule.halves(&seconds(rates)).expect("long enough");
        assert!(!halves.is_held_back() && halves.is_settling(), "{halves:?}");
        let rates = [
            1, 1, 1, 1, 96, 100, 135, 141, 133, 124, 132, 121, 83, 90, 103, 108, 107, 104, 108, 113,
        ];
        let halves = schedule.halves(&seconds(rates)).expect("long enough");
        assert!(!halves.is_held_back() && halves.is_settling(), "{halves:?}");
        // The seconds of a C tor with a limit vary slightly.
        let rates = [1, 1, 1, 1, 87, 87, 80, 83, 75, 84, 86, 78, 80, 76, 79, 77, 77, 85, 81, 75];
        let halves = schedule.halves(&seconds(rates)).expect("long enough");
        assert!(!halves.is_held_back() && !halves.is_settling(), "{halves:?}");
    }

    #[test]
    fn an_empty_round_has_no_growth() {
        let halves = PROBING.halves(&seconds([0; 12])).expect("long enough");
        assert!(!halves.is_held_back() && !halves.is_settling());
    }

    proptest! {
        /// The derivation above, for flows that are independent of each other.
        #[test]
        fn an_estimate_without_growth_is_near_the_relays_limit(
            relay in 1_000_000u64..1_000_000_000, half in 1_000_000u64..1_000_000_000,
        ) {
            let (first, second) = (half.min(relay), (2 * half).min(relay));
            let rates = (0..24u32).map(|number| if number < 12 { first } else { second });
            let schedule = Schedule { lead_s: 0, held_back_s: Some(12), few_circuits_s: 0 };
            let halves = schedule.halves(&seconds(rates)).expect("long enough");
            if !halves.is_held_back() {
                prop_assert!(first as f64 > 0.952 * relay as f64, "{first} of {relay}");
            }
            if 2 * half <= relay {
                prop_assert!(halves.is_held_back());
            }
        }
    }

    /// If others have *L* links, *k* links of a measurement get *k*/(*k*+*L*) of a rate limit.
    #[test]
    fn competition_that_takes_a_tenth_of_a_rate_limit_shows_with_any_team() {
        for (few, all) in [(2.0, 8.0), (3.0, 8.0), (4.0, 8.0), (40.0, 160.0)] {
            for others in 1..1000 {
                let share = |links: f64| links / (links + f64::from(others));
                let rate = |share: f64| Rate::from_mbit_per_s(1000.0 * share);
                let test = CompetitionTest { few: rate(share(few)), all: rate(share(all)) };
                let is_low = share(all) < 0.9;
                assert!(!is_low || test.is_contended(all / few), "{few}, {all}, {others}");
            }
            let alone = Rate::from_mbit_per_s(1000.0);
            assert!(
                !CompetitionTest { few: alone, all: alone.scaled(1.04) }.is_contended(all / few)
            );
        }
    }
}
