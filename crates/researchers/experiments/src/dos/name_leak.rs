//! What an exit's answers reveal about names that other clients have resolved.

use crate::reporting::median;
use lab::attacks::Probe;

/// The minimum number of answers of each kind.
const MIN_ANSWERS: usize = 10;

/// The maximum share of names that the TTLs in answers may classify correctly. Half are correct by chance, and some more because the
/// threshold is the best one.
pub(super) const BY_TTL: f64 = 0.75;

/// How well names that other clients have requested can be distinguished from names that they have not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NameLeak {
    /// The share of names that the best threshold for the time of an answer classifies correctly.
    pub(super) by_time: f64,
    /// The share for the best threshold for the TTL of an answer.
    pub(super) by_ttl: f64,
    /// The median time of answers for names that were requested before, in milliseconds.
    pub(super) asked_ms: f64,
    /// The median time for the others.
    pub(super) fresh_ms: f64,
    /// The distinct TTLs in answers, in seconds.
    pub(super) ttls_s: Vec<u32>,
}

impl NameLeak {
    /// # Errors
    /// There are too few answers.
    pub(super) fn from_probes(probes: &[Probe]) -> Result<Self, String> {
        let (asked, fresh): (Vec<&Probe>, Vec<&Probe>) =
            probes.iter().partition(|probe| probe.was_asked);
        if asked.len().min(fresh.len()) < MIN_ANSWERS {
            return Err(format!(
                "the attacker got {} answers for names that were requested before, and {} for others",
                asked.len(),
                fresh.len()
            ));
        }
        let ms = |probes: &[&Probe]| -> Vec<f64> {
            probes.iter().map(|probe| probe.took.as_secs_f64() * 1e3).collect()
        };
        let ttls = |probes: &[&Probe]| -> Vec<f64> {
            probes.iter().map(|probe| f64::from(probe.ttl_s)).collect()
        };
        let mut ttls_s: Vec<u32> = probes.iter().map(|probe| probe.ttl_s).collect();
        ttls_s.sort_unstable();
        ttls_s.dedup();
        let middle = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
        Ok(Self {
            by_time: best_guess(&ms(&asked), &ms(&fresh)),
            by_ttl: best_guess(&ttls(&asked), &ttls(&fresh)),
            asked_ms: middle(ms(&asked)),
            fresh_ms: middle(ms(&fresh)),
            ttls_s,
        })
    }
}

/// The share of values that the best threshold classifies correctly, with equal weight for both kinds. By chance it is one half.
#[expect(clippy::cast_precision_loss, reason = "some dozens of values")]
fn best_guess(one: &[f64], other: &[f64]) -> f64 {
    let below = |values: &[f64], bound: f64| {
        values.iter().filter(|value| **value <= bound).count() as f64 / values.len().max(1) as f64
    };
    let bounds = one.iter().chain(other);
    let gains = bounds.map(|bound| (below(one, *bound) - below(other, *bound)).abs());
    f64::midpoint(1.0, gains.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Duration;

    #[test]
    fn a_threshold_separates_different_values_and_not_equal_ones() {
        assert_eq!(best_guess(&[1.0, 2.0, 3.0], &[4.0, 5.0]), 1.0);
        assert_eq!(best_guess(&[4.0, 5.0], &[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(best_guess(&[60.0; 5], &[60.0; 7]), 0.5);
        assert_eq!(best_guess(&[1.0, 2.0, 9.0, 9.0], &[9.0; 4]), 0.75);
    }

    #[test]
    fn a_leak_needs_enough_answers_of_both_kinds() {
        let probe =
            |was_asked, ms, ttl_s| Probe { was_asked, took: Duration::from_millis(ms), ttl_s };
        let mut probes: Vec<Probe> = (0..20).map(|ms| probe(ms % 2 == 0, ms, 60)).collect();
        let leak = NameLeak::from_probes(&probes).expect("enough");
        assert_eq!((leak.by_ttl, leak.ttls_s.clone()), (0.5, vec![60]));
        assert!(leak.by_time < 0.6, "{leak:?}");
        probes.iter_mut().filter(|probe| probe.was_asked).for_each(|probe| probe.ttl_s = 59);
        assert_eq!(NameLeak::from_probes(&probes).expect("enough").by_ttl, 1.0);
        let error = NameLeak::from_probes(&probes[..15]).expect_err("too few");
        assert!(error.contains("8 answers"), "{error}");
    }
}
