//! Formats numbers for display.

use onion::Rate;
use store::utc;

/// A rate, or a dash.
pub(crate) fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "–".to_owned(), |rate| format!("{:.2}", rate.as_mbit_per_s()))
}

/// A sum of rates.
pub(crate) fn large(rate: Rate) -> String {
    let mbit = rate.as_mbit_per_s();
    if mbit < 10_000.0 {
        format!("{mbit:.1} Mbit/s")
    } else {
        format!("{:.2} Gbit/s", mbit / 1000.0)
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
        assert_eq!(large(Rate::from_mbit_per_s(608_000.0)), "608.00 Gbit/s");
        assert_eq!([119, 120, 7200, 172_800].map(length), ["119 s", "2 min", "2 h", "2 days"]);
    }
}
