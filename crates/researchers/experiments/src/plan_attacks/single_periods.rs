//! The paper's plan, one period at a time: how often a part-time relay fails to get its full weight, compared with the sum in section 5.

use super::Settings;
use crate::columns::rounded;
use crate::error::{Error, Result};
use crate::grid::Row;
use coordinator::Params;
use coordinator::plan::{Machine, Plan, Seed, TeamRoom};
use onion::Rate;
use onion::identity::RsaId;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _, Hypergeometric};

/// The shares of the slots in which the relay is fast.
pub(super) const FAST: [f64; 7] = [0.1, 0.2, 0.25, 0.3, 0.4, 0.45, 0.5];

/// Slots of 30 s in a day.
const SLOTS: u32 = 2880;

/// Relays of the adversary in each plan, whose slots are independent of each other.
const RELAYS: u32 = 100;

/// A share is compared with the expected one up to this number of standard errors.
const DEVIATION_MAX: f64 = 4.0;

/// Authorities that measure, of which each is honest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Honest {
    /// Their number.
    pub(super) measuring: usize,
    /// The number of all authorities. The others report that the relay is fast.
    pub(super) of: usize,
}

impl Honest {
    /// With at least this number of slow results, the low median is slow.
    const fn slow_min(self) -> usize {
        (self.of - 1) / 2 + 1
    }
}

/// A relay that is fast in a share of the slots of each period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Failures {
    authorities: usize,
    fast_share: f64,
    periods: u64,
    /// Periods without the full weight, if the fast slots are random.
    failed_share_random_slots: Option<f64>,
    /// Periods without the full weight, if the fast slots are the first of the day.
    failed_share_first_slots: Option<f64>,
    /// The sum of section 5, with the low median.
    binomial_share: Option<f64>,
    /// That sum without replacement: two authorities never measure a relay in the same slot.
    hypergeometric_share: Option<f64>,
    /// The larger difference of both shares to `hypergeometric_share`.
    deviation_standard_errors: Option<f64>,
}

impl Failures {
    pub(super) const fn fast_share(&self) -> f64 {
        self.fast_share
    }

    pub(super) const fn failed_share(&self) -> Option<f64> {
        self.failed_share_random_slots
    }
}

/// Plays periods for one number of authorities.
pub(super) fn row(authorities: usize, settings: &Settings) -> Result<Row> {
    let honest = Honest { measuring: authorities, of: authorities };
    let found = play(honest, settings.periods, settings.seed)?;
    let cases = found.iter().map(|failures| {
        let name =
            format!("one period, authorities {authorities}, fast in {}", failures.fast_share);
        let deviation = failures.deviation_standard_errors.unwrap_or(f64::INFINITY);
        let is_held = deviation <= DEVIATION_MAX;
        let detail = format!(
            "fails in {:.3} of the periods, by the sum in {:.3}",
            failures.failed_share_random_slots.unwrap_or(f64::NAN),
            failures.binomial_share.unwrap_or(f64::NAN)
        );
        Case::named(name).ended(CaseVerdict::of(is_held), detail).with(failures)
    });
    Ok(Row { cases: cases.collect(), ..Row::default() })
}

/// Draws the slots of these authorities in many periods, and counts those in which most results are slow.
pub(super) fn play(honest: Honest, periods: u64, first_seed: u64) -> Result<Vec<Failures>> {
    let rng = &mut StdRng::seed_from_u64(first_seed);
    let rate = Rate::from_mbit_per_s(10.0);
    let teams = vec![TeamRoom::of(Rate::from_mbit_per_s(1e6)); honest.measuring];
    let factor = Params::default().excess_factor();
    let id = |number: u32| RsaId(std::array::from_fn(|place| number.to_be_bytes()[place % 4]));
    let mut failed = [[0u64; 2]; FAST.len()];
    let plans = periods.div_ceil(u64::from(RELAYS));
    let mut order: Vec<u32> = (0..SLOTS).collect();
    for _ in 0..plans {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let machines = (0..RELAYS).map(|number| Machine::single(id(number), rate)).collect();
        let plan = Plan::randomised(&Seed::from_bytes(seed), SLOTS, &teams, factor, machines);
        // The random slots of the relays: those that this order places first.
        order.shuffle(rng);
        for number in 0..RELAYS {
            let slots: Vec<u32> =
                (0..teams.len()).filter_map(|team| plan.slot(id(number), team)).collect();
            if slots.len() != teams.len() {
                return Err(Error::Failed("a relay has no slot in an empty plan".to_owned()));
            }
            for (of_share, fast) in failed.iter_mut().zip(FAST) {
                let first_slow = fast_slots(fast);
                let slow_random = slots.iter().filter(|slot| order[**slot as usize] >= first_slow);
                let slow_first = slots.iter().filter(|slot| **slot >= first_slow);
                let slow = [slow_random.count(), slow_first.count()];
                for (failed, slow) in of_share.iter_mut().zip(slow) {
                    *failed += u64::from(slow >= honest.slow_min());
                }
            }
        }
    }
    let played = plans * u64::from(RELAYS);
    Ok(failed
        .iter()
        .zip(FAST)
        .map(|(of_share, fast)| failures(honest, fast, played, *of_share))
        .collect())
}

fn failures(honest: Honest, fast: f64, periods: u64, failed: [u64; 2]) -> Failures {
    let shares = failed.map(|failed| failed as f64 / periods as f64);
    let expected = hypergeometric(honest, fast);
    let deviation = |share: f64| {
        let expected = expected?;
        let error = (expected * (1.0 - expected) / periods as f64).sqrt();
        // Of an event that is certain, each exception shows.
        Some((share - expected).abs() / error.max(f64::MIN_POSITIVE))
    };
    let largest = shares.into_iter().filter_map(deviation).reduce(f64::max);
    let digits = |share: f64| rounded(share, 5);
    Failures {
        authorities: honest.of,
        fast_share: fast,
        periods,
        failed_share_random_slots: digits(shares[0]),
        failed_share_first_slots: digits(shares[1]),
        binomial_share: binomial(honest, fast).and_then(digits),
        hypergeometric_share: expected.and_then(digits),
        deviation_standard_errors: largest.and_then(|deviation| rounded(deviation, 2)),
    }
}

/// The number of fast slots.
#[expect(clippy::cast_possible_truncation, reason = "a number of slots")]
#[expect(clippy::cast_sign_loss, reason = "shares are not negative")]
fn fast_slots(fast: f64) -> u32 {
    (fast * f64::from(SLOTS)).round() as u32
}

/// Σ Pr[B(n, 1−q) = k] over all *k* with a slow median.
pub(super) fn binomial(honest: Honest, fast: f64) -> Option<f64> {
    let slow = Binomial::new(1.0 - fast, honest.measuring as u64).ok()?;
    Some(slow.sf(honest.slow_min() as u64 - 1))
}

/// The probability of a slow median if the authorities' slots are drawn without replacement.
fn hypergeometric(honest: Honest, fast: f64) -> Option<f64> {
    let slow_slots = u64::from(SLOTS - fast_slots(fast));
    let slow = Hypergeometric::new(SLOTS.into(), slow_slots, honest.measuring as u64).ok()?;
    Some(slow.sf(honest.slow_min() as u64 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(authorities: usize) -> Honest {
        Honest { measuring: authorities, of: authorities }
    }

    /// Computed by hand from the definition, with the low median for six.
    #[test]
    fn the_sums_are_those_of_the_binomial_distribution() {
        for (authorities, fast, expected) in [
            (1, 0.25, 0.75),
            (2, 0.5, 0.75),
            (3, 0.25, 0.84375),
            (5, 0.3, 0.83692),
            (6, 0.3, 0.92953),
            (9, 0.45, 0.621_421),
        ] {
            let sum = binomial(all(authorities), fast).expect("a probability");
            assert!((sum - expected).abs() < 1e-5, "{authorities}, {fast}: {sum}");
            let without = hypergeometric(all(authorities), fast).expect("a probability");
            assert!((sum - without).abs() < 1e-3, "{authorities}, {fast}: {without}");
        }
        // A hair above: without replacement numbers vary less, and most results are slow.
        let with = |fast| (binomial(all(5), fast), hypergeometric(all(5), fast));
        let (sum, without) = with(0.25);
        assert!(without > sum, "{without:?} {sum:?}");
    }

    #[test]
    fn the_plan_has_the_failures_of_the_sum() {
        for authorities in [1, 4, 5] {
            for found in play(all(authorities), 4000, 7).expect("a plan") {
                let deviation = found.deviation_standard_errors.expect("some");
                assert!(deviation < DEVIATION_MAX, "{found:?}");
            }
        }
    }

    /// The comparison would notice a plan whose authorities all measure at the same time, or another median.
    #[test]
    fn another_median_would_deviate() {
        let found = play(Honest { measuring: 6, of: 6 }, 4000, 7).expect("a plan");
        let other = play(Honest { measuring: 6, of: 7 }, 4000, 7).expect("a plan");
        for (one, other) in found.iter().zip(&other) {
            assert!(
                one.failed_share_random_slots > other.failed_share_random_slots,
                "{one:?} {other:?}"
            );
            let sum = binomial(Honest { measuring: 6, of: 7 }, one.fast_share).expect("some");
            assert!((other.failed_share_first_slots.expect("some") - sum).abs() < 0.04);
        }
    }
}
