//! Who held the seconds of a round back, and how far they spread.
//!
//! Verdicts and explanations use this one rule, so that no result is called conclusive whose own seconds contradict that.

use crate::account::Waited;
use crate::allocation::Assignment;
use crate::bottleneck::MeasurerBottleneck;
use crate::outcome::Inconclusive;
use crate::second::SecondRecord;
use crate::stats::{Percentile, median};
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::Rate;

/// A conclusive estimate *z* claims that the relay can do at most *z*/(1−ε₁), with ε₁ = 0.2. If a quarter of the seconds
/// is above that, or a quarter is as far below *z*, the seconds contradict the claim.
const QUARTILE_MIN: f64 = 0.8;

/// Of fewer seconds, the burst in the first one of a rate-limited relay would be a quartile.
const QUARTILE_SECONDS_MIN: usize = 5;

/// The number of counted seconds by what held them back: the place where most cells waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldSeconds {
    relay: u32,
    path: u32,
    processor: u32,
    assigned_rate: u32,
}

impl HeldSeconds {
    /// Counts seconds. Those without an account do not count.
    #[must_use]
    pub fn count(seconds: impl IntoIterator<Item = Option<Waited>>) -> Self {
        let mut held = Self::default();
        for waited in seconds.into_iter().flatten() {
            let count = match waited {
                Waited::Relay => &mut held.relay,
                Waited::Path => &mut held.path,
                Waited::Processor => &mut held.processor,
                Waited::AssignedRate => &mut held.assigned_rate,
            };
            *count += 1;
        }
        held
    }

    /// The number of seconds with an account.
    #[must_use]
    pub const fn all(&self) -> u32 {
        self.relay + self.path + self.processor + self.assigned_rate
    }

    /// The places where most cells waited in any second, each with the number of seconds, most first.
    #[must_use]
    pub fn in_order(&self) -> Vec<(Waited, u32)> {
        let mut places: Vec<(Waited, u32)> = [
            (Waited::Relay, self.relay),
            (Waited::Path, self.path),
            (Waited::Processor, self.processor),
            (Waited::AssignedRate, self.assigned_rate),
        ]
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0)
        .collect();
        places.sort_by_key(|(_, seconds)| Reverse(*seconds));
        places
    }

    /// The cause on our side that held the round back, with the number of its seconds, if such causes held at least half of
    /// the seconds back. The relay's own link is on the path, so a path that all measurers meet shows the relay's limit.
    #[must_use]
    pub const fn own_cause(&self) -> Option<(Waited, u32)> {
        let own = self.processor + self.assigned_rate;
        if own == 0 || 2 * own < self.all() {
            return None;
        }
        Some(if self.processor >= self.assigned_rate {
            (Waited::Processor, self.processor)
        } else {
            (Waited::AssignedRate, self.assigned_rate)
        })
    }
}

impl SecondRecord {
    /// What held a second back: the place where most cells waited, by the account of the measurer that got the most back.
    /// Measurers with a bottleneck of their own show nothing about the others, and count only if there is no other.
    #[must_use]
    pub fn waited(
        &self,
        assignments: &[Assignment],
        bottlenecks: &[MeasurerBottleneck],
    ) -> Option<Waited> {
        let is_limited = |assignment: &Assignment| {
            bottlenecks.iter().any(|limited| limited.measurer == assignment.measurer)
        };
        let of_measurers = self.accounts.iter().zip(&self.returned_bytes).zip(assignments);
        let known = of_measurers.filter_map(|((account, bytes), assignment)| {
            Some((account.as_ref()?, !is_limited(assignment), bytes.unwrap_or_default()))
        });
        let most = known.max_by_key(|(_, is_free, bytes)| (*is_free, *bytes));
        most.map(|(account, ..)| account.waited())
    }
}

/// Why the counted seconds of a round contradict a conclusive result, if they do: each with its bytes, and what held it
/// back.
#[must_use]
pub fn doubt_of_seconds(seconds: &[(u64, Option<Waited>)]) -> Option<Inconclusive> {
    let held = HeldSeconds::count(seconds.iter().map(|(_, waited)| *waited));
    if let Some((by, seconds)) = held.own_cause() {
        return Some(Inconclusive::HeldBack { by, seconds, of: held.all(), next: None });
    }
    let mut bytes: Vec<u64> = seconds.iter().map(|(bytes, _)| *bytes).collect();
    bytes.sort_unstable();
    let all: u128 = bytes.iter().map(|bytes| u128::from(*bytes)).sum();
    let mean = u64::try_from(all.div_ceil(bytes.len().max(1) as u128)).unwrap_or(u64::MAX);
    let middle = median(&bytes)?;
    if let Some(unsteady) = Inconclusive::unsteadiness(middle, mean) {
        return Some(unsteady);
    }
    if bytes.len() < QUARTILE_SECONDS_MIN {
        return None;
    }
    let rates: Vec<Rate> = bytes.into_iter().map(Rate::from_byte_per_s).collect();
    let (low, high) = (Percentile::P25.of(&rates)?, Percentile::P75.of(&rates)?);
    let middle = Rate::from_byte_per_s(middle);
    let is_scattered = low < middle.scaled(QUARTILE_MIN) || high.scaled(QUARTILE_MIN) > middle;
    is_scattered.then_some(Inconclusive::Scattered { low, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;

    fn seconds(mbit: &[f64]) -> Vec<(u64, Option<Waited>)> {
        let second =
            |mbit: &f64| (Rate::from_mbit_per_s(*mbit).as_byte_per_s(), Some(Waited::Relay));
        mbit.iter().map(second).collect()
    }

    /// C tor with a limit of 50 Mbit/s, second by second (docs/transit.md).
    #[test]
    fn a_rate_limited_relay_is_steady() {
        let limited = [50.1, 41.0, 45.6, 44.0, 47.9, 45.6, 42.2, 46.3, 48.8, 45.6];
        assert_eq!(doubt_of_seconds(&seconds(&limited)), None);
        assert_eq!(doubt_of_seconds(&[]), None);
    }

    #[test]
    fn half_of_the_seconds_held_back_by_our_own_side_show_no_limit() {
        let mut all = seconds(&[50.0; 10]);
        for (_, waited) in &mut all[..4] {
            *waited = Some(Waited::Processor);
        }
        assert_eq!(doubt_of_seconds(&all), None);
        all[4].1 = Some(Waited::AssignedRate);
        let doubt = doubt_of_seconds(&all).expect("five of ten");
        assert_eq!(
            doubt.to_string(),
            "most cells waited for a measurer's processor in 4 of 10 seconds, so the relay's limit did not show"
        );
        // A path may be the relay's own link, and a second without an account shows nothing.
        let path: Vec<_> = all.iter().map(|(bytes, _)| (*bytes, Some(Waited::Path))).collect();
        let unknown: Vec<_> = all.iter().map(|(bytes, _)| (*bytes, None)).collect();
        assert_eq!((doubt_of_seconds(&path), doubt_of_seconds(&unknown)), (None, None));
    }

    #[test]
    fn quartiles_outside_of_the_claimed_bounds_are_a_doubt() {
        let low = [70.0, 70.0, 78.0, 100.0, 100.0, 100.0, 100.0, 110.0, 120.0, 120.0];
        assert!(matches!(doubt_of_seconds(&seconds(&low)), Some(Inconclusive::Scattered { .. })));
        let high = [90.0, 95.0, 100.0, 100.0, 100.0, 100.0, 110.0, 126.0, 130.0, 140.0];
        assert!(matches!(doubt_of_seconds(&seconds(&high)), Some(Inconclusive::Scattered { .. })));
        assert_eq!(doubt_of_seconds(&seconds(&[60.0, 20.0, 20.0])), None, "the burst");
        let stalled = [0.0, 0.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0];
        assert!(matches!(
            doubt_of_seconds(&seconds(&stalled)),
            Some(Inconclusive::Unsteady { .. })
        ));
    }

    /// A relay without a limit on a busy machine, which an earlier version called conclusive at 192 Mbit/s. In bytes, with R
    /// for the relay, P for a measurer's processor, and A for the assigned load.
    #[test]
    fn a_round_that_waited_for_a_measurers_processor_is_not_conclusive() {
        const SECONDS: &str = "17747906P 26589220A 8538054P 16307678A 11907838R 21383942R 23242566R 18974824R 22485444R \
            24061368A 29929192A 23022060R 5012528P 4086300R 27556054P 23156214R 37251122P 28041270P 31456286R 33645412P \
            34454448P 40097654P 9879594P 26332734P 18203824P 30006292P 37276822P 34225718R 29233236P 26878088P";
        let second = |text: &str| {
            let (bytes, place) = text.split_at(text.len() - 1);
            let waited = match place {
                "R" => Waited::Relay,
                "P" => Waited::Processor,
                _ => Waited::AssignedRate,
            };
            (bytes.parse().expect("a number"), Some(waited))
        };
        let all: Vec<(u64, Option<Waited>)> = SECONDS.split_whitespace().map(second).collect();
        let by = Waited::Processor;
        let held = Inconclusive::HeldBack { by, seconds: 16, of: 30, next: None };
        assert_eq!(doubt_of_seconds(&all), Some(held));
        let relays: Vec<_> = all.iter().map(|(bytes, _)| (*bytes, Some(Waited::Relay))).collect();
        let spread = doubt_of_seconds(&relays).expect("33 to 321 Mbit/s");
        assert_eq!(
            spread.to_string(),
            "it was unsteady: the middle half of the seconds ranged from 145.63 Mbit/s to 240.05 Mbit/s"
        );
    }

    #[test]
    fn places_are_named_most_first() {
        let waited = [Waited::Path, Waited::Processor, Waited::Processor].map(Some);
        let held = HeldSeconds::count(waited.into_iter().chain([None]));
        assert_eq!(held.in_order(), vec![(Waited::Processor, 2), (Waited::Path, 1)]);
        assert_eq!((held.all(), held.own_cause()), (3, Some((Waited::Processor, 2))));
    }
}
