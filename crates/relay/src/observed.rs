//! The observed bandwidth of a descriptor: the most that was carried for ten seconds.

use std::collections::VecDeque;

/// Seconds that are summed up: tor's `NUM_SECS_ROLLING_MEASURE`.
const WINDOW: usize = 10;
/// A record counts for so many days: tor's five.
const DAYS: usize = 5;
const DAY_S: u64 = 86_400;

/// Counts bytes second by second.
///
/// As in tor, the lesser of what was received and what was sent counts.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    received: Direction,
    sent: Direction,
}

impl Observed {
    /// Takes in one second's bytes.
    pub(crate) fn note_second(&mut self, received_bytes: u64, sent_bytes: u64) {
        self.received.note_second(received_bytes);
        self.sent.note_second(sent_bytes);
    }

    /// The observed bandwidth in bytes/s; zero until ten seconds have passed.
    pub(crate) fn bytes_s(&self) -> u64 {
        self.received.bytes_s().min(self.sent.bytes_s())
    }
}

#[derive(Debug, Default)]
struct Direction {
    window: VecDeque<u64>,
    /// The largest sums of the last days, today's last.
    records: VecDeque<u64>,
    seconds: u64,
}

impl Direction {
    fn note_second(&mut self, bytes: u64) {
        if self.seconds.is_multiple_of(DAY_S) {
            self.records.push_back(0);
            if self.records.len() > DAYS {
                self.records.pop_front();
            }
        }
        self.seconds += 1;
        self.window.push_back(bytes);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        if let Some(record) = self.records.back_mut().filter(|_| self.window.len() == WINDOW) {
            let sum = self.window.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            *record = (*record).max(sum);
        }
    }

    fn bytes_s(&self) -> u64 {
        self.records.iter().max().map_or(0, |sum| sum / WINDOW as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_ten_seconds_count_and_the_lesser_direction() {
        let mut observed = Observed::default();
        for _ in 0..9 {
            observed.note_second(1_000, 600);
        }
        assert_eq!(observed.bytes_s(), 0);
        observed.note_second(1_000, 600);
        assert_eq!(observed.bytes_s(), 600);
        observed.note_second(1_000, 1_600);
        assert_eq!(observed.bytes_s(), 700);
        for _ in 0..100 {
            observed.note_second(0, 0);
        }
        assert_eq!(observed.bytes_s(), 700);
        observed.note_second(u64::MAX, u64::MAX);
        observed.note_second(u64::MAX, u64::MAX);
        assert_eq!(observed.bytes_s(), u64::MAX / 10);
    }

    #[test]
    fn a_record_is_forgotten_after_five_days() {
        let mut observed = Observed::default();
        for _ in 0..10 {
            observed.note_second(500, 500);
        }
        for _ in 10..5 * DAY_S {
            observed.note_second(1, 1);
        }
        assert_eq!(observed.bytes_s(), 500);
        // The window that spans midnight counts for the new day.
        observed.note_second(1, 1);
        assert_eq!(observed.bytes_s(), 1);
    }
}
