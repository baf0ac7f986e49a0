//! Bandwidth history of the last days: `write-history` and `read-history` of an extra-info document
//! (dir-spec.txt, section 2.1.2), and the observed bandwidth of a descriptor.

#[cfg(test)]
mod tests;

use crate::rolling_window::{RollingWindow, WINDOW_S};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Length of an interval: a day, as in tor. Shorter intervals would help to trace clients.
const INTERVAL_S: u64 = 86_400;
/// Intervals kept: tor's five.
const INTERVALS: usize = 5;
/// Numbers are rounded down to KiB.
const ROUNDING: u64 = 0x3ff;

/// An interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Day {
    /// Total bytes.
    read: u64,
    written: u64,
    /// The maximum of ten seconds.
    most_read: u64,
    most_written: u64,
}

/// Bytes in both directions by calendar day. The intervals can be stored, and continue after a
/// restart: nothing was carried in between.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    /// Start of the current interval, in Unix seconds; 0 before the first second.
    began: u64,
    today: Day,
    /// Complete intervals, oldest first.
    whole: VecDeque<Day>,
    #[serde(skip)]
    reading: RollingWindow,
    #[serde(skip)]
    writing: RollingWindow,
}

impl History {
    /// Adds the bytes of a second.
    pub(crate) fn note_second(&mut self, unix_time_s: u64, received_bytes: u64, sent_bytes: u64) {
        self.advance_to(unix_time_s);
        let most = |before: &mut u64, sum: Option<u64>| *before = (*before).max(sum.unwrap_or(0));
        most(&mut self.today.most_read, self.reading.note_second(received_bytes));
        most(&mut self.today.most_written, self.writing.note_second(sent_bytes));
        self.today.read = self.today.read.saturating_add(received_bytes);
        self.today.written = self.today.written.saturating_add(sent_bytes);
    }

    /// Moves the intervals with a clock that was set, by this number of seconds: the bytes were counted as long ago as before.
    pub(crate) fn handle_jump(&mut self, by_s: i64) {
        self.began = self.began.saturating_add_signed(by_s);
    }

    /// Ends intervals that are over. If the clock was set far back, or ahead of all intervals,
    /// while the relay was down, the history starts anew.
    fn advance_to(&mut self, now: u64) {
        let over = now.saturating_sub(self.began) / INTERVAL_S;
        if now.saturating_add(INTERVAL_S) < self.began || over > INTERVALS as u64 {
            *self = Self { began: now, ..Self::default() };
            return;
        }
        for _ in 0..over {
            self.whole.push_back(std::mem::take(&mut self.today));
            self.began += INTERVAL_S;
        }
        while self.whole.len() > INTERVALS {
            self.whole.pop_front();
        }
    }

    /// The observed bandwidth in bytes/s: the maximum of ten seconds, in the direction where it is
    /// less, as in tor.
    pub(crate) fn observed_bytes_s(&self) -> u64 {
        let days = || self.whole.iter().chain([&self.today]);
        let read = days().map(|day| day.most_read).max().unwrap_or(0);
        let written = days().map(|day| day.most_written).max().unwrap_or(0);
        read.min(written) / WINDOW_S
    }

    /// Both lines; empty before the first day is complete. No number exceeds what the rate limit
    /// permits: the excess would be the relay's own traffic.
    pub(crate) fn lines(&self, rate_bytes_s: u64) -> String {
        if self.whole.is_empty() {
            return String::new();
        }
        let most = rate_bytes_s.saturating_mul(INTERVAL_S);
        let end = netdoc::write::date_time(self.began);
        let line = |name: &str, pick: fn(&Day) -> u64| {
            let numbers =
                self.whole.iter().map(|day| (pick(day) & !ROUNDING).min(most).to_string());
            let numbers: Vec<_> = numbers.collect();
            format!("{name} {end} ({INTERVAL_S} s) {}\n", numbers.join(","))
        };
        line("write-history", |day| day.written) + &line("read-history", |day| day.read)
    }
}
