//! Numbers with units, by the rules of the program that reads them: Shadow, TGen and tor differ.

use onion::{Duration, Rate};

/// The number at the beginning, and the unit after it, with or without a space.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

fn scaled(text: &str, number: &str, factor: u64) -> Result<u64, String> {
    let problem = || format!("no such number: {text:?}");
    let number: u64 = number.parse().map_err(|_| problem())?;
    number.checked_mul(factor).ok_or_else(|| format!("too much: {text:?}"))
}

/// A rate of Shadow, such as "1000 kilobit": bits per second without a unit (Shadow's `BitsPerSec<SiPrefixUpper>`).
pub(crate) fn shadow_rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = split(text);
    let prefix = unit.strip_suffix("bits").or_else(|| unit.strip_suffix("bit")).unwrap_or(unit);
    let bits: u64 = match prefix {
        "" => 1,
        "K" | "k" | "kilo" => 1_000,
        "M" | "m" | "mega" => 1_000_000,
        "G" | "g" | "giga" => 1_000_000_000,
        "T" | "tera" => 1_000_000_000_000,
        "Ki" | "kibi" => 1 << 10,
        "Mi" | "mebi" => 1 << 20,
        "Gi" | "gibi" => 1 << 30,
        "Ti" | "tebi" => 1 << 40,
        _ => return Err(format!("no such unit of rates: {unit:?}; as in \"1000 kilobit\"")),
    };
    scaled(text, number, bits).map(Rate::from_bit_per_s)
}

/// A time of Shadow, such as "8500 us": seconds without a unit.
pub(crate) fn shadow_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let nanos: u64 = match unit {
        "ns" | "nanosecond" | "nanoseconds" => 1,
        "us" | "μs" | "microsecond" | "microseconds" => 1_000,
        "ms" | "millisecond" | "milliseconds" => 1_000_000,
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
        _ => return Err(format!("no such unit of time: {unit:?}; as in \"15 seconds\"")),
    };
    scaled(text, number, nanos).map(Duration::from_nanos)
}

/// A size of TGen, such as "1 MiB", in any case; bytes without a unit.
pub(crate) fn tgen_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "kb" | "kilobyte" | "kilobytes" => 1_000,
        "mb" | "megabyte" | "megabytes" => 1_000_000,
        "gb" | "gigabyte" | "gigabytes" => 1_000_000_000,
        "tb" | "terabyte" | "terabytes" => 1_000_000_000_000,
        "kib" | "kibibyte" | "kibibytes" => 1 << 10,
        "mib" | "mebibyte" | "mebibytes" => 1 << 20,
        "gib" | "gibibyte" | "gibibytes" => 1 << 30,
        "tib" | "tebibyte" | "tebibytes" => 1 << 40,
        _ => return Err(format!("no such unit of size: {unit:?}; as in \"1 MiB\"")),
    };
    scaled(text, number, bytes)
}

/// A time of TGen, such as "15 seconds", in any case; seconds without a unit.
pub(crate) fn tgen_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let nanos: u64 = match unit.to_ascii_lowercase().as_str() {
        "ns" | "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => 1,
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => 1_000,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1_000_000,
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
        _ => return Err(format!("no such unit of time: {unit:?}; as in \"15 seconds\"")),
    };
    scaled(text, number, nanos).map(Duration::from_nanos)
}

/// TGen's lists of times, separated by commas.
pub(crate) fn tgen_times(text: &str) -> Result<Vec<Duration>, String> {
    text.split(',').map(tgen_time).collect()
}

/// A rate of tor, such as "10 MBits", in any case, possibly with a fraction; bytes per second without a unit.
/// Tor's prefixes are powers of 1,024, for bits as well.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "units are powers of two, a fraction of a byte does not matter, and the number is in range"
)]
pub(crate) fn tor_rate(text: &str) -> Result<Rate, String> {
    let trimmed = text.trim();
    let end = trimmed
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "kb" | "kbyte" | "kbytes" | "kilobyte" | "kilobytes" => 1 << 10,
        "kbit" | "kbits" | "kilobit" | "kilobits" => 1 << 7,
        "m" | "mb" | "mbyte" | "mbytes" | "megabyte" | "megabytes" => 1 << 20,
        "mbit" | "mbits" | "megabit" | "megabits" => 1 << 17,
        "gb" | "gbyte" | "gbytes" | "gigabyte" | "gigabytes" => 1 << 30,
        "gbit" | "gbits" | "gigabit" | "gigabits" => 1 << 27,
        "tb" | "tbyte" | "tbytes" | "terabyte" | "terabytes" => 1 << 40,
        "tbit" | "tbits" | "terabit" | "terabits" => 1 << 37,
        _ => {
            return Err(format!(
                "no such unit of rates: {:?}; as in \"1000 bytes\" or \"10 MBits\"",
                unit.trim()
            ));
        }
    };
    if !number.contains('.') {
        return scaled(text, number, bytes).map(Rate::from_byte_per_s);
    }
    let number: f64 = number.parse().map_err(|_| format!("no such number: {text:?}"))?;
    let rate = number * bytes as f64;
    (rate < 1e18).then(|| Rate::from_byte_per_s(rate as u64)).ok_or(format!("too much: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadows_rates_and_times_accept_every_prefix() {
        let bits = |text| shadow_rate(text).map(Rate::as_bit_per_s);
        assert_eq!(bits("500680 kilobit"), Ok(500_680_000));
        for (text, expected) in [
            ("10Mbit", 10_000_000),
            ("10 Mbits", 10_000_000),
            ("10 M", 10_000_000),
            ("3 Kibit", 3072),
            ("2 terabits", 2_000_000_000_000),
            ("1000000", 1_000_000),
            ("7 bit", 7),
        ] {
            assert_eq!(bits(text), Ok(expected), "{text}");
        }
        assert_eq!(shadow_time("8500 us"), Ok(Duration::from_micros(8500)));
        assert_eq!(shadow_time("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(shadow_time("5 min"), Ok(Duration::from_mins(5)));
        assert_eq!(shadow_time("300"), Ok(Duration::from_mins(5)));
    }

    /// Everything in TGen's documentation, in any case.
    #[test]
    fn tgens_sizes_and_times_accept_any_case_and_no_unit() {
        let sizes = [
            ("", 1),
            ("b byte bytes", 1),
            ("kb kilobyte kilobytes", 1_000),
            ("mb megabyte megabytes", 1_000_000),
            ("gb gigabyte gigabytes", 1_000_000_000),
            ("tb terabyte terabytes", 1_000_000_000_000),
            ("kib kibibyte kibibytes", 1 << 10),
            ("mib mebibyte mebibytes", 1 << 20),
            ("gib gibibyte gibibytes", 1 << 30),
            ("tib tebibyte tebibytes", 1 << 40),
        ];
        let spelled = |unit: &str| [format!("5 {unit}"), format!("5 {}", unit.to_uppercase())];
        for (units, bytes) in sizes {
            for text in units.split(' ').flat_map(spelled) {
                assert_eq!(tgen_size(&text), Ok(5 * bytes), "{text}");
            }
        }
        let times = [
            ("nanosecond nanoseconds nsec nsecs ns", 1),
            ("microsecond microseconds usec usecs us", 1_000),
            ("millisecond milliseconds msec msecs ms", 1_000_000),
            ("second seconds sec secs s", 1_000_000_000),
            ("minute minutes min mins m", 60_000_000_000),
            ("hour hours hr hrs h", 3_600_000_000_000),
        ];
        for (units, nanos) in times {
            for text in units.split(' ').flat_map(spelled) {
                assert_eq!(tgen_time(&text), Ok(Duration::from_nanos(5 * nanos)), "{text}");
            }
        }
        assert_eq!(tgen_time("60"), Ok(Duration::from_mins(1)));
        let seconds = [1, 2, 180].map(Duration::from_secs);
        assert_eq!(tgen_times("1,2 s,3 Minutes"), Ok(seconds.to_vec()));
    }

    #[test]
    fn invalid_numbers_and_units_and_overflows_are_errors_that_quote_them() {
        for (what, expected) in [
            (shadow_rate("10 knots").map(drop), "unit"),
            (shadow_rate("fast").map(drop), "1000 kilobit"),
            (shadow_rate("99999999999999999999 bit").map(drop), "no such number"),
            (shadow_rate("99999999999999999 gigabit").map(drop), "too much"),
            (tgen_size("5 pages").map(drop), "unit"),
            (tgen_size("1.5 MiB").map(drop), "unit"),
            (tgen_size("-1").map(drop), "unit"),
            (tgen_time("-1 s").map(drop), "unit"),
            (tgen_time("").map(drop), "no such number"),
            (tgen_times("1,,2").map(drop), "no such number"),
            (shadow_time("9999999999999999 h").map(drop), "too much"),
            (tor_rate("5 MiB").map(drop), "unit"),
            (tor_rate("-5 MB").map(drop), "unit"),
            (tor_rate("1.2.3 MB").map(drop), "no such number"),
        ] {
            let error = what.expect_err("it is refused");
            assert!(error.contains(expected), "{error}");
        }
    }
}
