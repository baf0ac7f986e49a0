//! Confidence intervals of means over seeds.

use statrs::distribution::{ContinuousCDF, StudentsT};
use std::borrow::Borrow;
use std::fmt;

/// A mean with its 95 % confidence interval, by Student's t-distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean; NaN if there are no values.
    pub mean: f64,
    /// Half of the interval's width; `None` for fewer than two values.
    pub half_width: Option<f64>,
    /// The number of values.
    pub count: usize,
}

impl Interval {
    /// The interval of the finite values; all others are ignored.
    #[expect(clippy::cast_precision_loss, reason = "a handful of seeds")]
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Self {
        let values = values.into_iter().map(|value| *value.borrow());
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let free = count.saturating_sub(1) as f64;
        // An error for fewer than two values, which have no variance.
        let half_width = StudentsT::new(0.0, 1.0, free).ok().map(|student| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            student.inverse_cdf(0.975) * (squares / free / count as f64).sqrt()
        });
        Self { mean, half_width, count }
    }

    /// The interval of all values multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let half_width = self.half_width.map(|half_width| half_width * factor.abs());
        Self { mean: self.mean * factor, half_width, ..self }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        match f.sign_plus() {
            true => write!(f, "{:+.digits$}", self.mean)?,
            false => write!(f, "{:.digits$}", self.mean)?,
        }
        self.half_width.map_or(Ok(()), |half| write!(f, " ± {half:.digits$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;

    /// The table of Student's distribution has 12.706 for one degree of freedom, and 2.776 for four.
    #[test]
    fn intervals_match_the_table_of_students_distribution() {
        let two = Interval::of([1.0, 3.0]);
        assert!((two.half_width.expect("two") - 12.706).abs() < 1e-3, "{two:?}");
        let five = Interval::of([1.0, 2.0, 3.0, 4.0, 5.0]);
        let expected = 2.7764 * (2.5f64 / 5.0).sqrt();
        assert!((five.half_width.expect("five") - expected).abs() < 1e-3, "{five:?}");
        assert_eq!((five.mean, five.count), (3.0, 5));
    }

    #[test]
    fn one_value_has_no_interval_and_no_values_have_no_mean() {
        assert_eq!(Interval::of([2.0]).half_width, None);
        assert_eq!(Interval::of([2.0, f64::NAN]).to_string(), "2.00");
        assert!(Interval::of([0.0; 0]).mean.is_nan());
        assert_eq!(format!("{:.1}", Interval::of([2.0, 2.0]).times(10.0)), "20.0 ± 0.0");
        assert_eq!(format!("{:+.1}", Interval::of([2.0, 2.0])), "+2.0 ± 0.0");
    }
}
