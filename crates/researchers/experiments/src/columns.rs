//! Rounded columns of cases.

use report::experiment::Case;

/// A number rounded to this many decimal digits; `None` if it is not finite.
pub(crate) fn rounded(value: f64, digits: i32) -> Option<f64> {
    let scale = 10f64.powi(digits);
    value.is_finite().then(|| (value * scale).round() / scale)
}

/// Adds a value and the ends of its interval: `NAME`, `NAME_low` and `NAME_high`.
pub(crate) fn with_interval(
    case: Case,
    name: &str,
    value: f64,
    interval: Option<(f64, f64)>,
    digits: i32,
) -> Case {
    case.column(name, rounded(value, digits))
        .column(&format!("{name}_low"), interval.and_then(|interval| rounded(interval.0, digits)))
        .column(&format!("{name}_high"), interval.and_then(|interval| rounded(interval.1, digits)))
}
