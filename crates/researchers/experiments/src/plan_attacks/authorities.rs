//! Bandwidth authorities in virtual time, which measure one relay. The relay is a function of time.

use super::authority::Authority;
use crate::mode::Mode;
use coordinator::Due;
use coordinator::period::Bounds;
use coordinator::plan::Seed;
use onion::Rate;
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

/// The capacity of the relay.
pub(super) const CAPACITY: Rate = Rate::from_bit_per_s(100_000_000);

/// Slots of a day. A slot of a quarter of an hour stands for the real ones in it: of one relay, hardly two are in the same.
pub(super) const SLOTS: u32 = 96;

const DAY_S: u64 = 86_400;

/// When the first period begins, in Unix seconds.
const BEGIN_UNIX_S: u64 = 1_800_057_600;

/// Days before those that count. A new relay has an estimate after one, and no estimate is kept for longer than three.
const WARM_UP_DAYS: u32 = 10;

pub(super) const RELAY: RsaId = RsaId([1; 20]);

/// When an authority measures a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlanKind {
    /// Once in each period, at a random time (paper, §4.3).
    Paper,
    /// The coordinator's: at any time with the same probability. Results far below recent ones are confirmed.
    Memoryless,
    /// Like the coordinator's, without confirmations.
    Unconfirmed,
}

impl PlanKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper's plan",
            Self::Memoryless => "our plan",
            Self::Unconfirmed => "our plan without confirmations",
        }
    }
}

/// The authorities, and how they measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct World {
    pub(super) plan: PlanKind,
    pub(super) mode: Mode,
    pub(super) authorities: usize,
    /// Whether they plan by a common seed, so that no two measure the relay in the same slot.
    pub(super) has_shared_seed: bool,
}

/// The length of a run, and its random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) days: u32,
    pub(super) seed: u64,
}

/// What a relay does, or what is done to it.
pub(super) trait Behavior {
    /// The share of its capacity that it provides in a slot, counted from the beginning. `due` is the number of authorities that begin to
    /// measure it in this slot, which only a relay with an accomplice knows.
    fn share(&mut self, slot: u64, due: usize) -> f64;

    /// An authority has measured it in this slot.
    fn handle_measured(&mut self, _authority: usize, _slot: u64) {}
}

impl<F: FnMut(u64) -> f64> Behavior for F {
    fn share(&mut self, slot: u64, _: usize) -> f64 {
        self(slot)
    }
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gain {
    /// The mean weight in the consensus, over the capacity.
    pub(super) weight: f64,
    /// The mean share of the capacity that the relay provided.
    pub(super) service: f64,
    /// Measurements a day and authority.
    pub(super) measured: f64,
}

/// The low median, as tor takes it of the votes on a relay: of an even number of values, the smaller of the middle two.
pub(super) fn low_median<T: Ord>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len().checked_sub(1)? / 2;
    values.sort_unstable();
    values.into_iter().nth(middle)
}

impl World {
    /// Runs all authorities, slot by slot. `change` gets the estimate of each before the consensus takes their median.
    pub(super) fn play(
        &self,
        run: Run,
        behavior: &mut dyn Behavior,
        change: impl Fn(usize, Option<Rate>) -> Option<Rate>,
    ) -> Gain {
        let rng = &mut StdRng::seed_from_u64(run.seed);
        let common = seed(rng);
        let mut all: Vec<Authority> = (0..self.authorities)
            .map(|place| Authority::new(*self, place, common.clone(), seed(rng)))
            .collect();
        let mut gain = Gain::default();
        for day in 0..WARM_UP_DAYS + run.days {
            let day_unix_s = BEGIN_UNIX_S + u64::from(day) * DAY_S;
            let bounds = Bounds {
                begin_unix_s: day_unix_s,
                length_s: DAY_S,
                slot_s: DAY_S / u64::from(SLOTS),
            };
            all.iter_mut().for_each(|authority| authority.begin(bounds));
            for slot in 0..SLOTS {
                let now_unix_s = day_unix_s + u64::from(slot) * bounds.slot_s;
                let number = u64::from(day) * u64::from(SLOTS) + u64::from(slot);
                let due: Vec<Option<Due>> =
                    all.iter_mut().map(|authority| authority.poll_due(slot)).collect();
                let share = behavior.share(number, due.iter().flatten().count());
                for ((place, authority), due) in all.iter_mut().enumerate().zip(&due) {
                    let Some(due) = due else { continue };
                    authority.measure(*due, slot, now_unix_s, CAPACITY.scaled(share));
                    behavior.handle_measured(place, number);
                }
                if day < WARM_UP_DAYS {
                    continue;
                }
                let votes = all.iter().enumerate();
                let votes = votes.filter_map(|(place, authority)| {
                    change(place, authority.estimate(now_unix_s + 1))
                });
                let weight = low_median(votes.collect()).unwrap_or(Rate::ZERO);
                gain.weight += weight.as_mbit_per_s() / CAPACITY.as_mbit_per_s();
                gain.service += share;
                gain.measured += due.iter().flatten().count() as f64;
            }
        }
        let slots = f64::from(run.days * SLOTS);
        gain.weight /= slots;
        gain.service /= slots;
        gain.measured *= f64::from(SLOTS) / slots / self.authorities as f64;
        gain
    }
}

fn seed(rng: &mut StdRng) -> Seed {
    let mut bytes = [0; 32];
    rng.fill_bytes(&mut bytes);
    Seed::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(plan: PlanKind, authorities: usize) -> World {
        World { plan, mode: Mode::Echo, authorities, has_shared_seed: true }
    }

    #[test]
    fn the_median_of_an_even_number_is_the_smaller_of_the_middle_two() {
        assert_eq!(low_median(vec![4, 1, 3, 2]), Some(2));
        assert_eq!(low_median(vec![3, 1, 2]), Some(2));
        assert_eq!(low_median(vec![2, 1]), Some(1));
        assert_eq!(low_median::<u32>(Vec::new()), None);
    }

    #[test]
    fn an_honest_relay_has_its_capacity_as_weight() {
        let run = Run { days: 20, seed: 1 };
        for (plan, at_least, at_most) in
            [(PlanKind::Paper, 0.99, 1.01), (PlanKind::Memoryless, 1.0, 1.3)]
        {
            let gain = world(plan, 4).play(run, &mut |_| 1.0, |_, estimate| estimate);
            assert!((gain.weight - 1.0).abs() < 1e-6, "{gain:?}");
            assert!((gain.service - 1.0).abs() < 1e-9, "{gain:?}");
            assert!((at_least..=at_most).contains(&gain.measured), "{plan:?}: {gain:?}");
        }
    }

    /// A relay that becomes slow is believed only after other measurements, and one that becomes fast after the load has grown.
    #[test]
    fn the_weight_follows_the_capacity() {
        let run = Run { days: 20, seed: 2 };
        let half = u64::from((WARM_UP_DAYS + 10) * SLOTS);
        for mode in [Mode::Echo, Mode::Transit] {
            let world = World { mode, ..world(PlanKind::Memoryless, 3) };
            let falls = &mut |slot| if slot < half { 1.0 } else { 0.1 };
            let fallen = world.play(run, falls, |_, estimate| estimate);
            assert!((0.55..0.7).contains(&fallen.weight), "{mode:?}: {fallen:?}");
            let rises = &mut |slot| if slot < half { 0.1 } else { 1.0 };
            let risen = world.play(run, rises, |_, estimate| estimate);
            assert!((0.3..0.55).contains(&risen.weight), "{mode:?}: {risen:?}");
        }
    }
}
