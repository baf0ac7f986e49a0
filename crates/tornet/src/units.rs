//! Numbers with their units, as Shadow and TGen write them.

use onion::{Duration, Rate};

/// The number, and the unit behind it, with a space between them or none.
fn with_unit<'a>(text: &'a str, what: &str, example: &str) -> Result<(u64, &'a str), String> {
    let text = text.trim();
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let problem = || format!("no such {what}: {text:?}; as in {example:?}");
    Ok((number.parse().map_err(|_| problem())?, unit.trim()))
}

/// "1000 kilobit".
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = with_unit(text, "rate", "1000 kilobit")?;
    let bits: u64 = match unit {
        "bit" => 1,
        "kilobit" | "kbit" | "Kbit" => 1_000,
        "megabit" | "mbit" | "Mbit" => 1_000_000,
        "gigabit" | "gbit" | "Gbit" => 1_000_000_000,
        "kibibit" | "Kibit" => 1 << 10,
        "mebibit" | "Mibit" => 1 << 20,
        "gibibit" | "Gibit" => 1 << 30,
        _ => return Err(format!("no such unit of rates: {unit:?}; as in \"1000 kilobit\"")),
    };
    let bits = number.checked_mul(bits).ok_or_else(|| format!("too much: {text:?}"))?;
    Ok(Rate::from_bit_per_s(bits))
}

/// "1 MiB".
pub(crate) fn size_bytes(text: &str) -> Result<u32, String> {
    let (number, unit) = with_unit(text, "size", "1 MiB")?;
    let shift = match unit {
        "byte" | "bytes" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(format!("no such unit of size: {unit:?}")),
    };
    let bytes = number.checked_mul(1 << shift).and_then(|it| u32::try_from(it).ok());
    bytes.ok_or_else(|| format!("more than four GiB: {text:?}"))
}

/// "15 seconds".
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = with_unit(text, "time", "15 seconds")?;
    let nanos: u64 = match unit {
        "ns" | "nanosecond" | "nanoseconds" => 1,
        "us" | "μs" | "microsecond" | "microseconds" => 1_000,
        "ms" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
        _ => return Err(format!("no such unit of time: {unit:?}")),
    };
    let nanos = number.checked_mul(nanos).ok_or_else(|| format!("too long: {text:?}"))?;
    Ok(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shadow_writes_is_read_with_its_unit() {
        assert_eq!(rate("500680 kilobit"), Ok(Rate::from_bit_per_s(500_680_000)));
        assert_eq!(rate("10Mbit"), Ok(Rate::from_bit_per_s(10_000_000)));
        assert_eq!(rate("3 Kibit"), Ok(Rate::from_bit_per_s(3072)));
        assert_eq!(size_bytes("5 MiB"), Ok(5 << 20));
        assert_eq!(duration("60 seconds"), Ok(Duration::from_mins(1)));
        assert_eq!(duration("8500 us"), Ok(Duration::from_micros(8500)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
    }

    #[test]
    fn what_has_no_unit_or_is_too_much_is_an_error_that_says_so() {
        for (what, said) in [
            (rate("10").map(drop), "unit"),
            (rate("fast").map(drop), "1000 kilobit"),
            (rate("99999999999999999999 bit").map(drop), "no such rate"),
            (rate("99999999999999999 gigabit").map(drop), "too much"),
            (size_bytes("5 GiB").map(drop), "four GiB"),
            (size_bytes("5 pages").map(drop), "unit"),
            (duration("-1 s").map(drop), "no such time"),
            (duration("9999999999999999 h").map(drop), "too long"),
        ] {
            let error = what.expect_err("it is refused");
            assert!(error.contains(said), "{error}");
        }
    }
}
