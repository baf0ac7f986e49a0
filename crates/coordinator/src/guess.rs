//! The capacity to expect of a relay before it is measured (§4.2).

use crate::stats::Percentile;
use alloc::vec::Vec;
use onion::{Duration, Rate};

/// How to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuessPolicy {
    /// An estimate that is this old, or older, says nothing any more. The paper: a month.
    pub valid_for: Duration,
    /// Which percentile of last month's capacities a relay without estimate gets. The paper: 75th.
    pub percentile: Percentile,
    /// The guess where nothing was measured yet. Not in the paper.
    pub default: Rate,
    /// No guess is lower. A tiny one costs a round per doubling and saves no capacity worth the
    /// name, and from zero no doubling leads away. Not in the paper.
    pub least: Rate,
}

impl Default for GuessPolicy {
    fn default() -> Self {
        Self {
            valid_for: Duration::from_secs(30 * 24 * 3600),
            percentile: Percentile::P75,
            default: Rate::from_bit_per_s(50_000_000),
            least: Rate::from_bit_per_s(1_000_000),
        }
    }
}

/// A relay's last estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastEstimate {
    /// What was measured.
    pub capacity: Rate,
    /// How long ago.
    pub age: Duration,
}

/// Where a guess comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuessSource {
    /// The relay's own last estimate: an old relay.
    LastEstimate,
    /// The distribution of last month's capacities: a new relay, or one not measured for long.
    Distribution,
    /// The configured default: no relay was measured last month.
    Default,
}

/// *z₀* of the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The capacity to expect.
    pub capacity: Rate,
    /// Where it comes from.
    pub source: GuessSource,
}

/// Guesses a relay's capacity from its last estimate and the capacities of all relays that were
/// measured last month, in any order (§4.2).
#[must_use]
pub fn first_guess(
    policy: &GuessPolicy,
    last: Option<PastEstimate>,
    last_month: impl IntoIterator<Item = Rate>,
) -> Guess {
    let fresh = last.filter(|past| past.age < policy.valid_for);
    let (capacity, source) = if let Some(past) = fresh {
        (past.capacity, GuessSource::LastEstimate)
    } else {
        let mut sorted: Vec<Rate> = last_month.into_iter().collect();
        sorted.sort_unstable();
        match policy.percentile.of(&sorted) {
            Some(capacity) => (capacity, GuessSource::Distribution),
            None => (policy.default, GuessSource::Default),
        }
    };
    Guess { capacity: capacity.max(policy.least), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn mbit(rates: &[u32]) -> Vec<Rate> {
        rates.iter().map(|rate| Rate::from_mbit_per_s(f64::from(*rate))).collect()
    }

    fn past(mbit: f64, days: u32) -> Option<PastEstimate> {
        Some(PastEstimate { capacity: Rate::from_mbit_per_s(mbit), age: DAY * days })
    }

    #[test]
    fn an_old_relay_is_expected_to_be_what_it_was() {
        let guess = first_guess(&GuessPolicy::default(), past(70.0, 29), mbit(&[1, 2, 3]));
        assert_eq!(guess.capacity, Rate::from_mbit_per_s(70.0));
        assert_eq!(guess.source, GuessSource::LastEstimate);
    }

    #[test]
    fn a_relay_not_measured_for_a_month_is_like_a_new_one() {
        let policy = GuessPolicy::default();
        let month = mbit(&[40, 10, 30, 20]);
        let stale = first_guess(&policy, past(70.0, 30), month.clone());
        assert_eq!(stale, first_guess(&policy, None, month));
        assert_eq!(stale.capacity, Rate::from_mbit_per_s(30.0));
        assert_eq!(stale.source, GuessSource::Distribution);
    }

    #[test]
    fn without_any_history_the_default_is_guessed() {
        let policy = GuessPolicy::default();
        let guess = first_guess(&policy, None, []);
        assert_eq!(guess, Guess { capacity: policy.default, source: GuessSource::Default });
    }

    #[test]
    fn no_guess_is_below_the_least() {
        let policy = GuessPolicy::default();
        assert_eq!(first_guess(&policy, past(0.0, 1), []).capacity, policy.least);
        assert_eq!(first_guess(&policy, None, mbit(&[0])).capacity, policy.least);
    }
}
