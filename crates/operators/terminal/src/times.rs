//! Times on the command line and in output: one parser and one format for all commands.

use jiff::Timestamp;

/// A time in Unix seconds: Unix seconds themselves, a date (its midnight in UTC), a date and a time (in UTC, if there
/// is no offset; the separator is `T` or a blank, as in consensuses), or a time as in RFC 3339.
///
/// # Errors
/// A message that names the accepted forms, or says that the time is before 1970.
pub fn time(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Some(seconds) = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        && let Ok(seconds) = seconds.parse()
    {
        return Ok(seconds);
    }
    let forms = [text.to_owned(), format!("{text}Z"), format!("{text}T00:00:00Z")];
    let time = forms.iter().find_map(|form| form.parse::<Timestamp>().ok());
    let time = time.ok_or_else(|| {
        format!(
            "`{text}` is not a time: give Unix seconds (1795705200), a date (2026-11-26), or a date and time in UTC (2026-11-26T15:00:00)"
        )
    })?;
    u64::try_from(time.as_second()).map_err(|_| format!("{text} is before 1970"))
}

/// A time for people, such as `2026-11-26 15:00:00 UTC`.
#[must_use]
pub fn readable(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    match time {
        Some(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        None => format!("Unix second {unix_s}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_seconds_dates_and_times_are_parsed() {
        for (text, expected) in [
            ("0", 0),
            ("1795705200", 1_795_705_200),
            ("2026-11-26", 1_795_651_200),
            ("2026-11-26T15:00:00", 1_795_705_200),
            ("2026-11-26 15:00:00", 1_795_705_200),
            ("2026-11-26T15:00", 1_795_705_200),
            ("2026-11-26T15:00:00Z", 1_795_705_200),
            ("2026-11-26T17:00:00+02:00", 1_795_705_200),
        ] {
            assert_eq!(time(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-11-26T25:00:00",
            "-5",
            "1.5",
            "99999999999999999999",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert!(time("1969-12-31").is_err_and(|error| error.contains("before 1970")));
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(1_795_705_200), "2026-11-26 15:00:00 UTC");
        assert_eq!(readable(u64::MAX), format!("Unix second {}", u64::MAX));
        assert_eq!(time(readable(1_795_705_200).trim_end_matches(" UTC")), Ok(1_795_705_200));
    }
}
