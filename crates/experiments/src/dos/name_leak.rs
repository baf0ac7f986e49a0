//! What an exit's answers reveal about names that others have resolved.

use crate::reporting::median;
use lab::attacks::Probe;

/// Fewer answers of either kind say nothing.
const LEAST: usize = 10;

/// Of names classified correctly by the lifetimes in answers, at most: half are right by chance, and somewhat more by the best of all
/// thresholds.
pub(super) const BY_TTL: f64 = 0.75;

/// How well names that others have asked for can be distinguished from names that nobody has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NameLeak {
    /// Names classified correctly by the best threshold for the time of an answer, as a share.
    pub(super) by_time: f64,
    /// The share by the lifetimes in answers.
    pub(super) by_ttl: f64,
    /// Median time of answers to names that somebody has asked for, in milliseconds.
    pub(super) asked_ms: f64,
    /// The median of the others.
    pub(super) fresh_ms: f64,
    /// Lifetimes in answers, in seconds, each once.
    pub(super) ttls_s: Vec<u32>,
}

impl NameLeak {
    /// # Errors
    /// Where too few answers came; says how many.
    pub(super) fn of(probes: &[Probe]) -> Result<Self, String> {
        let (asked, fresh): (Vec<&Probe>, Vec<&Probe>) =
            probes.iter().partition(|probe| probe.was_asked);
        if asked.len().min(fresh.len()) < LEAST {
            return Err(format!(
                "the stranger got {} answers about names that were asked for, and {} about others",
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

/// The share of values that the best threshold puts on the right side: each kind counts as much as the other. One half says nothing.
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
    fn what_differs_tells_and_what_is_the_same_does_not() {
        assert_eq!(best_guess(&[1.0, 2.0, 3.0], &[4.0, 5.0]), 1.0);
        assert_eq!(best_guess(&[4.0, 5.0], &[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(best_guess(&[60.0; 5], &[60.0; 7]), 0.5);
        assert_eq!(best_guess(&[1.0, 2.0, 9.0, 9.0], &[9.0; 4]), 0.75);
    }

    #[test]
    fn answers_of_both_kinds_are_compared_and_too_few_say_nothing() {
        let probe =
            |was_asked, ms, ttl_s| Probe { was_asked, took: Duration::from_millis(ms), ttl_s };
        let mut probes: Vec<Probe> = (0..20).map(|ms| probe(ms % 2 == 0, ms, 60)).collect();
        let told = NameLeak::of(&probes).expect("enough");
        assert_eq!((told.by_ttl, told.ttls_s.clone()), (0.5, vec![60]));
        assert!(told.by_time < 0.6, "{told:?}");
        probes.iter_mut().filter(|it| it.was_asked).for_each(|it| it.ttl_s = 59);
        assert_eq!(NameLeak::of(&probes).expect("enough").by_ttl, 1.0);
        let error = NameLeak::of(&probes[..15]).expect_err("too few");
        assert!(error.contains("8 answers"), "{error}");
    }
}
