//! The statistics of the paper's tables.

use super::judge::rounded;
use crate::reporting::median;
use report::experiment::Case;
use statrs::statistics::Statistics as _;

/// Median, mean, standard deviation, and both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Statistics {
    pub(super) median: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Statistics {
    /// The statistics of a sample; all are NaN if it is empty.
    pub(super) fn from_values(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        Self {
            median: median(values.iter().copied()).unwrap_or(f64::NAN),
            mean,
            deviation: values.std_dev(),
            least: values.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
            most: values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
        }
    }

    /// Adds them as columns `NAME_median_UNIT` and so on.
    pub(super) fn columns(self, case: Case, name: &str, unit: &str) -> Case {
        let all = [
            ("median", self.median),
            ("mean", self.mean),
            ("deviation", self.deviation),
            ("least", self.least),
            ("most", self.most),
        ];
        all.into_iter().fold(case, |case, (statistic, value)| {
            case.column(&format!("{name}_{statistic}_{unit}"), rounded(value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Statistics;

    #[test]
    fn a_textbook_sample_has_its_statistics() {
        let all = Statistics::from_values(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((all.median, all.mean, all.least, all.most), (4.5, 5.0, 2.0, 9.0));
        assert!((all.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12, "{all:?}");
    }
}
