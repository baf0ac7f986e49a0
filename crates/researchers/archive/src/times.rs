//! Months, dates and spans.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A day in seconds.
pub const DAY_S: i64 = 86_400;

/// `YYYY-MM` in UTC.
#[must_use]
pub fn month(unix_s: i64) -> String {
    let date = date(unix_s);
    format!("{:04}-{:02}", date.year(), date.month())
}

/// `YYYY-MM-DD` in UTC.
#[must_use]
pub fn day(unix_s: i64) -> String {
    date(unix_s).to_string()
}

/// `YYYY-MM-DD HH:MM` in UTC.
#[must_use]
pub fn minute(unix_s: i64) -> String {
    let zoned = timestamp(unix_s).to_zoned(TimeZone::UTC);
    format!("{} {:02}:{:02}", zoned.date(), zoned.hour(), zoned.minute())
}

/// Unix seconds of `YYYY-MM-DD`, `YYYY-MM-DD HH:MM`, `YYYY-MM-DDTHH:MM:SSZ` or a number of Unix seconds.
///
/// # Errors
/// The text is not a time. The error has the accepted formats.
pub fn parse(text: &str) -> Result<i64, String> {
    if let Ok(unix_s) = text.parse::<i64>() {
        return Ok(unix_s);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp.as_second());
    }
    let civil = text.parse::<jiff::civil::DateTime>();
    let zoned = civil.and_then(|civil| civil.to_zoned(TimeZone::UTC));
    zoned.map(|zoned| zoned.timestamp().as_second()).map_err(|_| {
        format!("`{text}` is not a date: write YYYY-MM-DD, YYYY-MM-DD HH:MM or Unix seconds")
    })
}

fn timestamp(unix_s: i64) -> Timestamp {
    Timestamp::from_second(unix_s).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn date(unix_s: i64) -> Date {
    timestamp(unix_s).to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc_and_months_partition() {
        assert_eq!(parse("2019-08-01"), Ok(1_564_617_600));
        assert_eq!(parse("2019-08-01 01:00"), Ok(1_564_621_200));
        assert_eq!(parse("2019-08-01T00:00:00Z"), Ok(1_564_617_600));
        assert!(parse("August").is_err());
        assert_eq!(month(1_564_617_599), "2019-07");
        assert_eq!(month(1_564_617_600), "2019-08");
        assert_eq!(minute(1_564_621_200), "2019-08-01 01:00");
    }
}
