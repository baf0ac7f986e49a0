//! Formats numbers for display.

use onion::Rate;
use store::{Measurement, utc};

/// A number with `decimals` decimals. Small numbers have more: as many as two digits need.
pub(crate) fn digits(number: f64, decimals: usize) -> String {
    // The place of the first digit, for decimals up to the second one.
    const LEAST: [f64; 7] = [1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6];
    let needed = LEAST.iter().position(|least| number.abs() >= *least).map_or(0, |place| place + 1);
    format!("{number:.*}", if number == 0.0 { 0 } else { decimals.max(needed) })
}

/// A rate, or a dash.
pub(crate) fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "–".to_owned(), |rate| digits(rate.as_mbit_per_s(), 2))
}

/// A sum of rates.
pub(crate) fn large(rate: Rate) -> String {
    let mbit = rate.as_mbit_per_s();
    if mbit < 10_000.0 {
        format!("{} Mbit/s", digits(mbit, 1))
    } else {
        format!("{:.2} Gbit/s", mbit / 1000.0)
    }
}

/// The outcome of a measurement in words. One that another one follows is not a result yet.
pub(crate) fn outcome(measurement: &Measurement) -> &'static str {
    if measurement.state.has_result() && !measurement.is_final {
        "continued"
    } else {
        measurement.state.in_words()
    }
}

/// A time, or a dash if there is none.
pub(crate) fn time(unix_s: Option<u64>) -> String {
    unix_s.map_or_else(|| "–".to_owned(), utc)
}

/// A duration.
pub(crate) fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A readable form of a cause's name.
pub(crate) fn cause(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_that_suit_them() {
        assert_eq!(large(Rate::from_mbit_per_s(9_999.0)), "9999.0 Mbit/s");
        assert_eq!(large(Rate::ZERO), "0 Mbit/s");
        assert_eq!(
            [0.0, 0.021, 0.3, 1.0, 12.3].map(|ms| digits(ms, 1)),
            ["0", "0.021", "0.30", "1.0", "12.3"]
        );
        assert_eq!(rate(Some(Rate::from_byte_per_s(100))), "0.00080");
        assert_eq!(large(Rate::from_mbit_per_s(608_000.0)), "608.00 Gbit/s");
        assert_eq!([119, 120, 7200, 172_800].map(length), ["119 s", "2 min", "2 h", "2 days"]);
    }
}
