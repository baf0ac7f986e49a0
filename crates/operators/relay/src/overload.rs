//! Detects overload, as descriptors and extra-info documents report it (proposal 328, dir-spec.txt,
//! sections 2.1.1 and 2.1.2). Pure: times are arguments, in Unix seconds.

use netdoc::write::date_time;
use onion::router::RateLimit;
use serde::{Deserialize, Serialize};

const HOUR_S: u64 = 3600;
/// How long overload is reported after it was last observed.
const STAYS_S: u64 = 72 * HOUR_S;
/// The period over which seconds at the rate limit are counted.
const LIMIT_PERIOD_S: u64 = 24 * HOUR_S;
/// The rate limit is counted once in this time.
const LIMIT_STEP_S: u64 = 60;
/// The period over which handshakes are counted, as in C tor's
/// `overload_onionskin_ntor_period_secs`.
const HANDSHAKES_PERIOD_S: u64 = 6 * HOUR_S;
/// Overload if one in this number is refused, as in C tor's `overload_onionskin_ntor_scale_percent`
/// of 1.
const HANDSHAKES_PER_REFUSED: u64 = 100;

/// Counters of a relay since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// OOM events.
    pub(crate) sheds: u64,
    /// Circuit handshakes answered.
    pub(crate) answered_handshakes: u64,
    /// Circuit handshakes dropped for lack of time.
    pub(crate) refused_handshakes: u64,
    /// Failures for lack of a local port.
    pub(crate) without_port: u64,
    /// Failures for lack of a file descriptor.
    pub(crate) without_descriptor: u64,
    /// Times that data waited for the rate limit to be sent.
    pub(crate) limited: u64,
    /// Times that it waited to be read.
    pub(crate) limited_reads: u64,
}

/// Observed overload. It can be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overload {
    /// When memory, ports, or time for handshakes were last exhausted, rounded down to the hour.
    general: Option<u64>,
    /// When file descriptors were last exhausted, rounded down to the hour.
    descriptors: Option<u64>,
    /// Start of the current period of the rate limit, and minutes at the limit for sending in it.
    limited: Option<(u64, u32)>,
    /// Minutes at the limit for reading in that period.
    #[serde(default)]
    read_limited: u32,
    #[serde(skip)]
    before: Signs,
    #[serde(skip)]
    limited_at: u64,
    #[serde(skip)]
    read_limited_at: u64,
    /// Start of the current period of handshakes, and the counters then.
    #[serde(skip)]
    handshakes_since: Option<(u64, Signs)>,
}

impl Overload {
    /// Updates from the current counters.
    pub(crate) fn note(&mut self, now: u64, signs: Signs) {
        let before = std::mem::replace(&mut self.before, signs);
        let hour = now - now % HOUR_S;
        let are_refused = self.are_handshakes_refused(now, signs);
        if signs.sheds > before.sheds || signs.without_port > before.without_port || are_refused {
            self.general = Some(hour);
        }
        if signs.without_descriptor > before.without_descriptor {
            self.descriptors = Some(hour);
        }
        // As in C tor, each direction is counted once in a minute.
        let is_due = |is_limited: bool, at: u64| is_limited && now.abs_diff(at) >= LIMIT_STEP_S;
        let is_limited = is_due(signs.limited > before.limited, self.limited_at);
        let is_read_limited =
            is_due(signs.limited_reads > before.limited_reads, self.read_limited_at);
        if !is_limited && !is_read_limited {
            return;
        }
        let period = self.limited.filter(|(since, _)| now.abs_diff(*since) < LIMIT_PERIOD_S);
        let (since, count) = period.unwrap_or((hour, 0));
        if period.is_none() {
            self.read_limited = 0;
        }
        self.limited = Some((since, count.saturating_add(u32::from(is_limited))));
        self.read_limited = self.read_limited.saturating_add(u32::from(is_read_limited));
        if is_limited {
            self.limited_at = now;
        }
        if is_read_limited {
            self.read_limited_at = now;
        }
    }

    /// Moves all times with a clock that was set, by this number of seconds.
    pub(crate) fn handle_jump(&mut self, by_s: i64) {
        let moved = |at: u64| at.saturating_add_signed(by_s);
        let hour = |at: u64| moved(at) - moved(at) % HOUR_S;
        self.general = self.general.map(hour);
        self.descriptors = self.descriptors.map(hour);
        self.limited = self.limited.map(|(since, count)| (hour(since), count));
        self.limited_at = moved(self.limited_at);
        self.handshakes_since = self.handshakes_since.map(|(since, signs)| (moved(since), signs));
    }

    /// Whether a period has ended in which too many handshakes were dropped. A short attack is not
    /// overload.
    fn are_handshakes_refused(&mut self, now: u64, signs: Signs) -> bool {
        let (since, then) = *self.handshakes_since.get_or_insert((now, signs));
        if now.abs_diff(since) < HANDSHAKES_PERIOD_S {
            return false;
        }
        self.handshakes_since = Some((now, signs));
        let refused = signs.refused_handshakes.saturating_sub(then.refused_handshakes);
        let answered = signs.answered_handshakes.saturating_sub(then.answered_handshakes);
        refused * HANDSHAKES_PER_REFUSED > refused + answered
    }

    /// The line of a server descriptor, if there was overload.
    pub(crate) fn descriptor_line(&self, now: u64) -> String {
        line("overload-general", self.general, now)
    }

    /// The lines of an extra-info document.
    pub(crate) fn extra_info_lines(&self, now: u64, limit: Option<RateLimit>) -> String {
        let limited =
            self.limited.zip(limit).filter(|((since, _), _)| now.abs_diff(*since) < LIMIT_PERIOD_S);
        let limited = limited.map(|((since, count), limit)| {
            let (rate, burst) = (limit.rate.as_byte_per_s(), limit.burst_bytes);
            let reads = self.read_limited;
            format!("overload-ratelimits 1 {} {rate} {burst} {reads} {count}\n", date_time(since))
        });
        limited.unwrap_or_default() + &line("overload-fd-exhausted", self.descriptors, now)
    }
}

fn line(name: &str, at: Option<u64>, now: u64) -> String {
    let recent = at.filter(|at| now.saturating_sub(*at) < STAYS_S);
    recent.map_or_else(String::new, |at| format!("{name} 1 {}\n", date_time(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;

    /// 2023-11-14 22:13:20.
    const NOW: u64 = 1_700_000_000;

    #[test]
    fn overload_is_reported_for_three_days_with_hourly_times() {
        let mut overload = Overload::default();
        overload.note(NOW, Signs::default());
        assert_eq!(overload.descriptor_line(NOW) + &overload.extra_info_lines(NOW, None), "");
        overload.note(NOW, Signs { sheds: 1, ..Signs::default() });
        let expected = "overload-general 1 2023-11-14 22:00:00\n";
        assert_eq!(overload.descriptor_line(NOW), expected);
        assert_eq!(overload.extra_info_lines(NOW, None), "");
        let hour = NOW - NOW % HOUR_S;
        assert_eq!(overload.descriptor_line(hour + STAYS_S - 1), expected);
        assert_eq!(overload.descriptor_line(hour + STAYS_S), "");
        // Exhausted memory was reported before; ports are new.
        let later = NOW + HOUR_S;
        overload.note(later, Signs { sheds: 1, ..Signs::default() });
        assert_eq!(overload.descriptor_line(later), expected);
        overload.note(later, Signs { sheds: 1, without_port: 1, ..Signs::default() });
        assert_eq!(overload.descriptor_line(later), "overload-general 1 2023-11-14 23:00:00\n");
        overload.note(later, Signs { without_descriptor: 3, ..Signs::default() });
        let expected = "overload-fd-exhausted 1 2023-11-14 23:00:00\n";
        assert_eq!(overload.extra_info_lines(later, None), expected);
        for by_s in [3_456_000, -3_456_000] {
            overload.handle_jump(by_s);
        }
        assert_eq!(overload.extra_info_lines(later, None), expected, "a clock that was wrong");
        let stored = serde_json::to_string(&overload).expect("JSON");
        let again: Overload = serde_json::from_str(&stored).expect("the same");
        assert_eq!(again.extra_info_lines(later, None), expected);
    }

    #[test]
    fn a_hundredth_of_all_handshakes_refused_in_six_hours_is_overload() {
        let handshakes = |answered_handshakes, refused_handshakes| Signs {
            answered_handshakes,
            refused_handshakes,
            ..Signs::default()
        };
        let mut overload = Overload::default();
        overload.note(NOW, handshakes(5_000, 5_000));
        overload.note(NOW + HANDSHAKES_PERIOD_S - 1, handshakes(5_099, 5_002));
        assert_eq!(overload.descriptor_line(NOW), "", "not before the period is over");
        let later = NOW + HANDSHAKES_PERIOD_S;
        overload.note(later, handshakes(5_099, 5_001));
        assert_eq!(overload.descriptor_line(later), "", "one in a hundred is not more than that");
        let last = later + HANDSHAKES_PERIOD_S;
        overload.note(last, handshakes(5_197, 5_002));
        let expected = "overload-general 1 2023-11-15 10:00:00\n";
        assert_eq!(overload.descriptor_line(last), expected, "one in 99 is");
    }

    #[test]
    fn minutes_at_the_rate_limit_are_counted_for_a_day() {
        let mut overload = Overload::default();
        let limit = Some(RateLimit { rate: Rate::from_byte_per_s(100_000), burst_bytes: 200_000 });
        for second in 0..150 {
            overload.note(NOW + second, Signs { limited: second + 1, ..Signs::default() });
        }
        let expected = "overload-ratelimits 1 2023-11-14 22:00:00 100000 200000 0 3\n";
        assert_eq!(overload.extra_info_lines(NOW + 150, limit), expected);
        assert_eq!(overload.extra_info_lines(NOW + 150, None), "");
        assert_eq!(overload.extra_info_lines(NOW + LIMIT_PERIOD_S, limit), "");
        let tomorrow = NOW + LIMIT_PERIOD_S;
        overload.note(tomorrow, Signs { limited: 1_000, ..Signs::default() });
        let expected = "overload-ratelimits 1 2023-11-15 22:00:00 100000 200000 0 1\n";
        assert_eq!(overload.extra_info_lines(tomorrow, limit), expected);
        // The directions are counted separately: two minutes of reading, one of them with sending.
        for second in 1..=LIMIT_STEP_S + 1 {
            let signs = Signs { limited: 1_000, limited_reads: second, ..Signs::default() };
            overload.note(tomorrow + second, signs);
        }
        let expected = "overload-ratelimits 1 2023-11-15 22:00:00 100000 200000 2 1\n";
        assert_eq!(overload.extra_info_lines(tomorrow, limit), expected);
        let signs = Signs { limited: 1_001, limited_reads: 62, ..Signs::default() };
        overload.note(tomorrow + 2 * LIMIT_STEP_S + 1, signs);
        let expected = "overload-ratelimits 1 2023-11-15 22:00:00 100000 200000 3 2\n";
        let stored = serde_json::to_string(&overload).expect("JSON");
        let again: Overload = serde_json::from_str(&stored).expect("the same");
        assert_eq!(again.extra_info_lines(tomorrow, limit), expected);
        // A state of a version that did not limit reading.
        let former = r#"{"general":null,"descriptors":null,"limited":[1699999200,4]}"#;
        let former: Overload = serde_json::from_str(former).expect("a former state");
        let expected = "overload-ratelimits 1 2023-11-14 22:00:00 100000 200000 0 4\n";
        assert_eq!(former.extra_info_lines(NOW, limit), expected);
    }
}
