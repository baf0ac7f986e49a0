//! Numbers for people, with a suitable unit and three significant digits.

/// Three significant digits, and never a negative zero.
pub(super) fn significant(value: f64) -> String {
    let magnitude = value.abs().log10().floor();
    let decimals = if value == 0.0 || !magnitude.is_finite() { 0.0 } else { 2.0 - magnitude };
    let text = match decimals {
        decimals if decimals <= 0.0 => format!("{value:.0}"),
        decimals if decimals <= 1.0 => format!("{value:.1}"),
        decimals if decimals <= 2.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    let is_zero =
        text.trim_start_matches('-').chars().all(|character| matches!(character, '0' | '.'));
    if is_zero { "0".to_owned() } else { text }
}

/// A time in seconds.
pub(super) fn seconds(value: f64) -> String {
    match value.abs() {
        size if size >= 1.0 || size == 0.0 => format!("{} s", significant(value)),
        size if size >= 1e-3 => format!("{} ms", significant(value * 1e3)),
        _ => format!("{} µs", significant(value * 1e6)),
    }
}

/// A rate in bits per second.
pub(super) fn rate(bit_per_s: f64) -> String {
    match bit_per_s.abs() {
        size if size >= 1e9 => format!("{} Gbit/s", significant(bit_per_s * 1e-9)),
        size if size >= 1e6 => format!("{} Mbit/s", significant(bit_per_s * 1e-6)),
        _ => format!("{} kbit/s", significant(bit_per_s * 1e-3)),
    }
}

/// A size, in the largest unit of which it is a multiple.
pub(super) fn bytes(count: u32) -> String {
    match count {
        count if count >= 1 << 20 && count.is_multiple_of(1 << 20) => {
            format!("{} MiB", count >> 20)
        }
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => {
            format!("{} KiB", count >> 10)
        }
        count => counted(count.into(), "byte"),
    }
}

/// A number with its noun.
pub(super) fn counted(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits_and_three_digits() {
        assert_eq!(seconds(0.000_213_4), "213 µs");
        assert_eq!(seconds(0.0213), "21.3 ms");
        assert_eq!(seconds(2.557), "2.56 s");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(rate(9_870_000.0), "9.87 Mbit/s");
        assert_eq!(rate(113e9), "113 Gbit/s");
        assert_eq!(rate(0.0), "0 kbit/s");
        assert_eq!(
            [bytes(51_200), bytes(5 << 20), bytes(1000), bytes(1)],
            ["50 KiB", "5 MiB", "1000 bytes", "1 byte"]
        );
        assert_eq!([counted(1, "relay"), counted(0, "relay")], ["1 relay", "0 relays"]);
    }

    #[test]
    fn nothing_is_never_negative() {
        assert_eq!(
            [significant(-4.4e-16), significant(-0.0), significant(-0.25)],
            ["0", "0", "-0.250"]
        );
    }
}
