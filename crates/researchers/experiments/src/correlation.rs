//! Correlations.

use std::fmt;

/// Pearson's correlation coefficient, with its interval by Fisher's transformation.
pub(crate) struct Correlation {
    pub(crate) coefficient: f64,
    /// The 95 % interval; `None` for fewer than four pairs.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) count: usize,
}

impl Correlation {
    /// Correlates the two values of these pairs.
    pub(crate) fn from_pairs(pairs: &[(f64, f64)]) -> Self {
        let count = pairs.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
        let both = sum(&|pair| (pair.0 - x) * (pair.1 - y));
        let (xs, ys) = (sum(&|pair| (pair.0 - x).powi(2)), sum(&|pair| (pair.1 - y).powi(2)));
        let coefficient = both / (xs * ys).sqrt();
        let interval = (pairs.len() > 3 && coefficient.is_finite()).then(|| {
            let (middle, width) = (coefficient.atanh(), 1.96 / (count - 3.0).sqrt());
            ((middle - width).tanh(), (middle + width).tanh())
        });
        Self { coefficient, interval, count: pairs.len() }
    }
}

impl fmt::Display for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.coefficient)?;
        match self.interval {
            Some((low, high)) => write!(f, " ({low:.2} to {high:.2})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_and_its_interval_match_a_textbook_example() {
        let pairs: Vec<(f64, f64)> =
            [1.0, 2.0, 3.0, 4.0, 5.0].into_iter().zip([2.0, 4.0, 5.0, 4.0, 5.0]).collect();
        let correlation = Correlation::from_pairs(&pairs);
        assert!((correlation.coefficient - 0.774_596_7).abs() < 1e-6, "{correlation}");
        let (low, high) = correlation.interval.expect("five");
        // atanh r ± 1.96/√2.
        assert!((low + 0.339_6).abs() < 1e-3 && (high - 0.984_0).abs() < 1e-3, "{correlation}");
        assert_eq!(Correlation::from_pairs(&pairs[..3]).interval, None);
    }
}
