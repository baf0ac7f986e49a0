//! The paper's strategies of E.3 and E.4, on stored seconds.

use super::Measurement;
use crate::columns::rounded;
use crate::reporting::{median, quantile};
use report::experiment::Case;
use serde::Serialize;
use std::fmt;

/// How seconds become an estimate. Lengths are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Strategy {
    /// The median of the first seconds.
    Median { length: usize },
    /// The median of the first `length` seconds without the first `lead` of them.
    IgnoredLead { length: usize, lead: usize },
    /// The median of the first window that differs from the one before by less than this share, or else of the last window.
    Dynamic { window: usize, change: f64 },
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Median { length } => write!(f, "median of {length} s"),
            Self::IgnoredLead { length, lead } => {
                write!(f, "median of {length} s without the first {lead}")
            }
            Self::Dynamic { window, change } => {
                write!(f, "until windows of {window} s differ by {} %", change * 100.0)
            }
        }
    }
}

impl Strategy {
    /// The estimate from the seconds of a measurement, and how many of them it takes. `None` if there are too few.
    fn estimate(self, seconds: &[f64]) -> Option<(f64, usize)> {
        let of = |seconds: &[f64]| median(seconds.iter().copied());
        match self {
            Self::Median { length } => Some((of(seconds.get(..length)?)?, length)),
            Self::IgnoredLead { length, lead } => Some((of(seconds.get(lead..length)?)?, length)),
            Self::Dynamic { window, change } => {
                let medians: Vec<f64> = seconds.chunks_exact(window).filter_map(of).collect();
                let is_stable = |pair: &[f64]| (pair[1] - pair[0]).abs() < change * pair[0];
                let last = medians.len().checked_sub(1).filter(|last| *last > 0)?;
                let stable = medians.windows(2).position(is_stable).map_or(last, |pair| pair + 1);
                Some((medians[stable], (stable + 1) * window))
            }
        }
    }

    /// The accuracy of this strategy as a case.
    pub(super) fn case(self, all: &[Measurement]) -> Case {
        let Some(accuracy) = Accuracy::new(all, self) else {
            return Case::reported(self.to_string(), "no measurement is long enough");
        };
        let [low, middle, high] = accuracy.quartiles;
        let detail = format!(
            "{:.3} to {:.3} of the truth, half of {} measurements {low:.3} to {high:.3}",
            accuracy.lowest, accuracy.highest, accuracy.count
        );
        Case::reported(self.to_string(), detail).with(&Columns {
            measurements: accuracy.count,
            mean_length_s: rounded(accuracy.mean_length_s, 1),
            lowest: rounded(accuracy.lowest, 4),
            quartile_25: rounded(low, 4),
            median: rounded(middle, 4),
            quartile_75: rounded(high, 4),
            highest: rounded(accuracy.highest, 4),
            range: accuracy.range().and_then(|range| rounded(range, 4)),
            largest_change: rounded(accuracy.largest_change, 4),
        })
    }
}

/// Columns of a strategy. Estimates are divided by the truth.
#[derive(Serialize)]
struct Columns {
    measurements: usize,
    mean_length_s: Option<f64>,
    lowest: Option<f64>,
    quartile_25: Option<f64>,
    median: Option<f64>,
    quartile_75: Option<f64>,
    highest: Option<f64>,
    range: Option<f64>,
    /// The largest difference from the median of the whole measurement, as a share of that.
    largest_change: Option<f64>,
}

/// Estimates over truths of all measurements that are long enough.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Accuracy {
    pub(super) lowest: f64,
    pub(super) highest: f64,
    quartiles: [f64; 3],
    count: usize,
    mean_length_s: f64,
    largest_change: f64,
}

impl Accuracy {
    /// `None` if no measurement is long enough.
    #[expect(clippy::cast_precision_loss, reason = "numbers of seconds and of measurements")]
    pub(super) fn new(all: &[Measurement], strategy: Strategy) -> Option<Self> {
        let (mut ratios, mut largest_change, mut seconds) = (Vec::new(), 0.0f64, 0);
        for measurement in all {
            let Some((estimate, length)) = strategy.estimate(&measurement.seconds) else {
                continue;
            };
            let whole = median(measurement.seconds.iter().copied())?;
            ratios.push(estimate / measurement.truth);
            largest_change = largest_change.max((estimate / whole - 1.0).abs());
            seconds += length;
        }
        ratios.sort_by(f64::total_cmp);
        let quartile = |share: f64| quantile(ratios.iter().copied(), share);
        Some(Self {
            lowest: *ratios.first()?,
            highest: *ratios.last()?,
            quartiles: [quartile(0.25)?, quartile(0.5)?, quartile(0.75)?],
            count: ratios.len(),
            mean_length_s: seconds as f64 / ratios.len() as f64,
            largest_change,
        })
    }

    /// `None` for a single measurement.
    pub(super) fn range(&self) -> Option<f64> {
        (self.count > 1).then_some(self.highest - self.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_use_the_seconds_that_they_name() {
        let seconds: Vec<f64> = (1..=60).map(f64::from).collect();
        let estimate = |strategy: Strategy| strategy.estimate(&seconds);
        assert_eq!(estimate(Strategy::Median { length: 10 }), Some((5.5, 10)));
        assert_eq!(estimate(Strategy::Median { length: 61 }), None);
        assert_eq!(estimate(Strategy::IgnoredLead { length: 30, lead: 10 }), Some((20.5, 30)));
        // Windows of 5 s have the medians 3, 8, 13, …: the 9th, 43, is the first less than 15 % above the one before.
        assert_eq!(estimate(Strategy::Dynamic { window: 5, change: 0.15 }), Some((43.0, 45)));
        assert_eq!(estimate(Strategy::Dynamic { window: 5, change: 0.0 }), Some((58.0, 60)));
        assert_eq!(estimate(Strategy::Dynamic { window: 31, change: 0.1 }), None, "one window");
    }

    #[test]
    fn accuracy_is_relative_to_the_truth_and_to_the_whole() {
        let measurement = |first: f64| Measurement {
            truth: 100.0,
            seconds: [vec![first; 10], vec![90.0; 20]].concat(),
        };
        let all = [measurement(45.0), measurement(90.0)];
        let short = Accuracy::new(&all, Strategy::Median { length: 10 }).expect("long enough");
        assert_eq!((short.lowest, short.highest, short.largest_change), (0.45, 0.9, 0.5));
        let quartiles = short.quartiles.map(|quartile| rounded(quartile, 6));
        assert_eq!(quartiles, [0.5625, 0.675, 0.7875].map(Some));
        let whole = Accuracy::new(&all, Strategy::Median { length: 30 }).expect("long enough");
        assert_eq!((whole.range(), whole.largest_change), (Some(0.0), 0.0));
        assert_eq!(Accuracy::new(&all, Strategy::Median { length: 31 }), None);
    }
}
