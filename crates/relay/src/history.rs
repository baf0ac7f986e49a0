//! How much was carried in the last days: `write-history` and `read-history` of an extra-info
//! document (dir-spec.txt, section 2.1.2).

use std::collections::VecDeque;

/// The length of an interval: a day, as in tor, since shorter ones would help to follow clients.
const INTERVAL_S: u64 = 86_400;
/// Intervals that are kept: tor's five.
const INTERVALS: usize = 5;
/// Numbers are rounded down to whole KiB.
const ROUNDING: u64 = 0x3ff;

/// Bytes in both directions, day by day. It is not stored: a restart begins anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Seconds of the present interval that are over.
    elapsed_s: u64,
    read: u64,
    written: u64,
    /// Whole intervals, the oldest first.
    whole: VecDeque<(u64, u64)>,
    /// When the last whole one ended, in Unix seconds.
    ended: u64,
}

impl History {
    /// Takes in one second's bytes.
    pub(crate) fn note_second(&mut self, unix_time_s: u64, received_bytes: u64, sent_bytes: u64) {
        self.read = self.read.saturating_add(received_bytes);
        self.written = self.written.saturating_add(sent_bytes);
        self.elapsed_s += 1;
        if self.elapsed_s < INTERVAL_S {
            return;
        }
        self.whole.push_back((self.read, self.written));
        if self.whole.len() > INTERVALS {
            self.whole.pop_front();
        }
        (self.elapsed_s, self.read, self.written, self.ended) = (0, 0, 0, unix_time_s);
    }

    /// Both lines; nothing before the first day is over. No number is larger than what the rate lets
    /// through: the rest would be traffic of our own.
    pub(crate) fn lines(&self, rate_bytes_s: u64) -> String {
        if self.whole.is_empty() {
            return String::new();
        }
        let most = rate_bytes_s.saturating_mul(INTERVAL_S);
        let end = crate::document::date_time(self.ended);
        let line = |name: &str, pick: fn(&(u64, u64)) -> u64| {
            let numbers =
                self.whole.iter().map(|day| (pick(day) & !ROUNDING).min(most).to_string());
            let numbers: Vec<_> = numbers.collect();
            format!("{name} {end} ({INTERVAL_S} s) {}\n", numbers.join(","))
        };
        line("write-history", |day| day.1) + &line("read-history", |day| day.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_summed_up_and_five_are_kept() {
        let mut history = History::default();
        let begin = 1_700_000_000;
        for second in 1..INTERVAL_S {
            history.note_second(begin + second, 10, 20);
        }
        assert_eq!(history.lines(1_000), "");
        history.note_second(begin + INTERVAL_S, 10, 20);
        // 864,000 and 1,728,000, in whole KiB.
        let expected = "write-history 2023-11-15 22:13:20 (86400 s) 1727488\n\
                        read-history 2023-11-15 22:13:20 (86400 s) 863232\n";
        assert_eq!(history.lines(1_000), expected);
        assert!(
            history.lines(1).starts_with("write-history 2023-11-15 22:13:20 (86400 s) 86400\n")
        );
        for day in 1..=6 {
            for second in 1..=INTERVAL_S {
                history.note_second(begin + day * INTERVAL_S + second, u64::MAX / 100_000, 0);
            }
        }
        let lines = history.lines(u64::MAX);
        assert!(lines.starts_with("write-history 2023-11-21 22:13:20 (86400 s) 0,0,0,0,0\n"));
        assert_eq!(lines.matches(',').count(), 8);
    }
}
