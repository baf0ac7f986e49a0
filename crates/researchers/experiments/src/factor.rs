//! Ratios of means, and verdicts from their confidence intervals.

use crate::simulated::Interval;
use report::experiment::CaseVerdict;
use std::fmt;

/// A ratio with its 95 % interval, computed on the logarithm because times have long tails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factor {
    pub(crate) value: f64,
    /// The ends; `None` if there are too few values.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Factor {
    /// The ratio of two means, with an interval from both errors (delta method).
    pub(crate) fn of_means(part: Interval, whole: Interval) -> Self {
        let value = part.mean / whole.mean;
        let relative = |interval: Interval| Some(interval.half_width? / interval.mean);
        let width = relative(part).zip(relative(whole)).map(|(a, b)| a.hypot(b));
        let width = width.filter(|width| width.is_finite());
        Self { value, interval: width.map(|width| (value * (-width).exp(), value * width.exp())) }
    }

    /// The geometric mean of the ratios of these pairs, numerator first. Variation that both of a pair share does not
    /// widen the interval.
    pub(crate) fn of_pairs(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let logs: Vec<f64> = pairs.into_iter().map(|(part, whole)| (part / whole).ln()).collect();
        let Interval { mean, half_width, .. } = Interval::of(&logs);
        let interval = half_width.map(|half| ((mean - half).exp(), (mean + half).exp()));
        Self { value: mean.exp(), interval }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "× {:.2}", self.value)?;
        match self.interval {
            Some((low, high)) => write!(f, " ({low:.2} to {high:.2})"),
            None => Ok(()),
        }
    }
}

/// Held if the whole interval is on the same side of `middle` as `expected`, missed if it is on the other side, and
/// inconclusive if it contains `middle` or is not known.
pub(crate) fn interval_verdict(
    interval: Option<(f64, f64)>,
    middle: f64,
    expected: f64,
) -> CaseVerdict {
    let Some((low, high)) = interval else { return CaseVerdict::Inconclusive };
    if low <= middle && middle <= high {
        return CaseVerdict::Inconclusive;
    }
    if (low > middle) == (expected > middle) { CaseVerdict::Held } else { CaseVerdict::Missed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_contains_the_middle_is_inconclusive() {
        assert_eq!(interval_verdict(Some((0.1, 0.9)), 0.0, 0.47), CaseVerdict::Held);
        assert_eq!(interval_verdict(Some((-0.9, -0.1)), 0.0, 0.47), CaseVerdict::Missed);
        assert_eq!(interval_verdict(Some((-0.9, -0.1)), 0.0, -0.34), CaseVerdict::Held);
        assert_eq!(interval_verdict(Some((-0.1, 0.9)), 0.0, 0.47), CaseVerdict::Inconclusive);
        assert_eq!(interval_verdict(None, 0.0, 0.47), CaseVerdict::Inconclusive);
        assert_eq!(interval_verdict(Some((0.4, 0.9)), 1.0, 0.53), CaseVerdict::Held);
        assert_eq!(interval_verdict(Some((1.1, 9.0)), 1.0, 0.53), CaseVerdict::Missed);
    }

    #[test]
    fn the_interval_of_a_ratio_combines_both_errors_and_stays_positive() {
        let exact = Interval { mean: 4.0, half_width: Some(0.0), count: 9 };
        let uncertain = Interval { mean: 2.0, half_width: Some(3.0), count: 3 };
        let Factor { value, interval: Some((low, high)) } = Factor::of_means(uncertain, exact)
        else {
            panic!("no interval");
        };
        assert!((value - 0.5).abs() < 1e-9 && low > 0.0, "{low}");
        // The ratio times and divided by e^1.5.
        assert!(
            (high / value - 4.481_689).abs() < 1e-5 && (value / low * value - high).abs() < 1e-9
        );
        let one = Interval { mean: 2.0, half_width: None, count: 1 };
        assert_eq!(Factor::of_means(one, exact).interval, None);
    }
}
