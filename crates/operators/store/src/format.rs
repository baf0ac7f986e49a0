//! Formats times and rates for people.

use jiff::Timestamp;
use onion::Duration;

/// A time as `2026-11-23 02:31 UTC`.
#[must_use]
pub fn utc(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let time = time.unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// A rough duration, in the largest unit of which it has at least two.
pub(crate) fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(24 * 3600, "days"), (3600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(length, _)| seconds >= 2 * length);
    let (length, name) = unit.unwrap_or((1, "seconds"));
    format!("{} {name}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_for_people() {
        assert_eq!(utc(1_800_000_000), "2027-01-15 08:00 UTC");
        assert_eq!(utc(u64::MAX), utc(u64::MAX - 1), "no panic");
        let roughly = |seconds| roughly(Duration::from_secs(seconds));
        assert_eq!(roughly(119), "119 seconds");
        assert_eq!(roughly(7199), "119 minutes");
        assert_eq!(roughly(172_800), "2 days");
    }
}
