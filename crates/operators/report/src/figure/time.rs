//! Dates and times in UTC on an axis.

use super::ticks::Ticks;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

const DAY_S: i64 = 24 * 3600;
/// 1970-01-05, a Monday, in days since 1970-01-01.
const MONDAY: i64 = 4;
/// Distances between ticks of less than a day, in seconds.
const SECONDS: [i64; 17] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
const DAYS: [i64; 4] = [1, 2, 7, 14];
const MONTHS: [i64; 14] = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 60_000];

/// Ticks at round times, at most `most` if that is possible. Labels are dates, and times of day between two dates.
pub(super) fn ticks(from: f64, to: f64, most: u8) -> Ticks {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`Axis::place` limits times to some thousand years"
    )]
    let (from, to) = (from.ceil() as i64, to.floor() as i64);
    let is_few = |ticks: &Ticks| ticks.len() <= usize::from(most);
    let all = || {
        let seconds = SECONDS.into_iter().map(|step| every(from, to, step, 0));
        let days = DAYS.into_iter().map(|step| every(from, to, step * DAY_S, MONDAY * DAY_S));
        seconds.chain(days).chain(MONTHS.into_iter().map(|step| months(from, to, step)))
    };
    // Ticks much closer than needed are not even made.
    let found = all().find_map(|times| {
        let times = times?;
        is_few(&times).then_some(times)
    });
    found.unwrap_or_default()
}

/// Times that are a multiple of `step` seconds after `origin`; `None` if they are too many for any axis.
fn every(from: i64, to: i64, step: i64, origin: i64) -> Option<Ticks> {
    let first = (from - origin).div_euclid(step) + i64::from((from - origin).rem_euclid(step) > 0);
    let last = (to - origin).div_euclid(step);
    let times = (first..=last).map(|number| origin + number * step);
    (last - first < 100).then(|| times.filter_map(|time| tick(time, step)).collect())
}

/// The first days of every `step`th month.
fn months(from: i64, to: i64, step: i64) -> Option<Ticks> {
    let month_of = |unix_s: i64| {
        let date = utc(unix_s)?.date();
        Some(i64::from(date.year()) * 12 + i64::from(date.month()) - 1)
    };
    let (first, last) = (month_of(from)?.div_euclid(step), month_of(to)?.div_euclid(step));
    let start = |month: i64| {
        let year = i16::try_from(month.div_euclid(12)).ok()?;
        let date = Date::new(year, i8::try_from(month.rem_euclid(12)).ok()? + 1, 1).ok()?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
    };
    let starts = (first..=last).filter_map(|number| start(number * step));
    let starts = starts.filter(|time| (from..=to).contains(time));
    (last - first < 100).then(|| starts.filter_map(|time| tick(time, step * 28 * DAY_S)).collect())
}

/// A tick, with a label that is as precise as the distance to the next one requires.
fn tick(unix_s: i64, step_s: i64) -> Option<(f64, String)> {
    const MONTH_S: i64 = 28 * DAY_S;
    const YEAR_S: i64 = 12 * MONTH_S;
    let time = utc(unix_s)?;
    let form = match step_s {
        YEAR_S.. => "%Y",
        MONTH_S.. => "%Y-%m",
        DAY_S.. => "%Y-%m-%d",
        // Midnight says which day it begins.
        _ if unix_s.rem_euclid(DAY_S) == 0 => "%Y-%m-%d",
        60.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    #[expect(clippy::cast_precision_loss, reason = "seconds are below 2^53")]
    Some((unix_s as f64, time.strftime(form).to_string()))
}

/// The day, if all times of a range are on the same one: its ticks have no date.
pub(super) fn common_day(from: f64, to: f64) -> Option<String> {
    let [first, last] = [from, to].map(|time| moment(time).map(DateTime::date));
    first.filter(|first| Some(*first) == last).map(|date| date.to_string())
}

/// A time for people, to the minute, or to the second if it has seconds.
pub(super) fn readable(unix_s: f64) -> String {
    moment(unix_s).map_or_else(String::new, |time| {
        let form = if time.second() == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" };
        time.strftime(form).to_string()
    })
}

/// A time for programs (RFC 3339), to the millisecond; `None` for what is no time.
pub(crate) fn rfc_3339(unix_s: f64) -> Option<String> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a conversion saturates, and is then refused"
    )]
    let milliseconds = (unix_s * 1000.0).round() as i64;
    let time = Timestamp::from_millisecond(milliseconds).ok()?;
    unix_s.is_finite().then(|| time.to_string())
}

fn moment(unix_s: f64) -> Option<DateTime> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a conversion saturates, and is then refused"
    )]
    let seconds = unix_s.floor() as i64;
    utc(seconds).filter(|_| unix_s.is_finite())
}

fn utc(unix_s: i64) -> Option<DateTime> {
    Some(Timestamp::from_second(unix_s).ok()?.to_zoned(TimeZone::UTC).datetime())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: f64 = 1_795_867_200.0;

    fn labels(from: f64, to: f64, most: u8) -> Vec<String> {
        ticks(from, to, most).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_at_round_times_with_labels_as_precise_as_needed() {
        let hour = 3600.0;
        assert_eq!(
            labels(NOON, NOON + 4.0, 10),
            ["12:00:00", "12:00:01", "12:00:02", "12:00:03", "12:00:04"]
        );
        assert_eq!(labels(NOON + 1.0, NOON + 1000.0, 4), ["12:05", "12:10", "12:15"]);
        assert_eq!(
            labels(NOON, NOON + 24.0 * hour, 5),
            ["12:00", "18:00", "2026-11-29", "06:00", "12:00"]
        );
        let week = labels(NOON, NOON + 7.0 * 24.0 * hour, 10);
        assert_eq!(
            (week.len(), &week[0], &week[6]),
            (7, &"2026-11-29".into(), &"2026-12-05".into())
        );
        let mondays = labels(NOON, NOON + 30.0 * 24.0 * hour, 6);
        assert_eq!(mondays, ["2026-11-30", "2026-12-07", "2026-12-14", "2026-12-21", "2026-12-28"]);
        assert_eq!(
            labels(NOON, NOON + 366.0 * 24.0 * hour, 4),
            ["2027-01", "2027-04", "2027-07", "2027-10"]
        );
        assert_eq!(labels(0.0, NOON, 10), ["1970", "1980", "1990", "2000", "2010", "2020"]);
        assert_eq!(labels(-2.4e11, 2.4e11, 10).first().map(String::as_str), Some("-5000"));
        assert_eq!(labels(1.0, 0.0, 10), [""; 0]);
    }

    #[test]
    fn times_are_written_for_people_and_programs() {
        assert_eq!(readable(NOON), "2026-11-28 12:00");
        assert_eq!(readable(NOON + 61.5), "2026-11-28 12:01:01");
        assert_eq!(rfc_3339(NOON + 0.25).as_deref(), Some("2026-11-28T12:00:00.25Z"));
        for odd in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!((readable(odd).as_str(), rfc_3339(odd)), ("", None));
        }
        assert_eq!(common_day(NOON, NOON + 3600.0).as_deref(), Some("2026-11-28"));
        assert_eq!(common_day(NOON, NOON + 43_200.0), None);
    }
}
