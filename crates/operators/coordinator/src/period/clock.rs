//! The current time, and its position in a period.

use onion::{Duration, Instant};

/// The time, by both clocks of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock: never decreases.
    pub instant: Instant,
    /// The wall clock, since 1970. It may be set forward and back.
    pub unix: Duration,
}

impl Now {
    /// Whole seconds since 1970.
    #[must_use]
    pub const fn unix_s(&self) -> u64 {
        self.unix.as_secs()
    }

    /// The time at which the wall clock will show `unix_s`, if it is not set; now if that is past.
    pub(super) fn when(&self, unix_s: u64) -> Instant {
        self.instant + Duration::from_secs(unix_s).saturating_sub(self.unix)
    }
}

/// The bounds of a period.
///
/// Periods follow each other without gaps from the beginning of 1970, so a restarted coordinator is in the same one,
/// and so are all coordinators with the same length of periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its start, in Unix seconds.
    pub begin_unix_s: u64,
    /// Its length.
    pub length_s: u64,
    /// The length of its slots.
    pub slot_s: u64,
}

impl Bounds {
    /// The period that this time is in.
    #[must_use]
    pub fn at(now_unix_s: u64, length: Duration, slot_s: u64) -> Self {
        let length_s = length.as_secs().max(1);
        let begin_unix_s = now_unix_s - now_unix_s % length_s;
        Self { begin_unix_s, length_s, slot_s: slot_s.max(1) }
    }

    /// The end, which is the start of the next one.
    #[must_use]
    pub const fn end_unix_s(&self) -> u64 {
        self.begin_unix_s + self.length_s
    }

    /// Whether it is over. A period that lies a slot ahead is over as well: the clock was wrong, and has been set back.
    #[must_use]
    pub const fn is_over(&self, now_unix_s: u64) -> bool {
        now_unix_s >= self.end_unix_s() || now_unix_s + self.slot_s < self.begin_unix_s
    }

    /// The number of its slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.length_s / self.slot_s).unwrap_or(u32::MAX)
    }

    /// The slot of this time.
    #[must_use]
    pub fn slot(&self, now_unix_s: u64) -> u32 {
        let passed_s = now_unix_s.saturating_sub(self.begin_unix_s);
        u32::try_from(passed_s / self.slot_s).unwrap_or(u32::MAX)
    }

    /// The start of a slot.
    pub(super) const fn slot_begins_unix_s(&self, slot: u32) -> u64 {
        self.begin_unix_s + slot as u64 * self.slot_s
    }

    /// The slot by which a relay must be measured, if its estimate was made at this time and is
    /// [kept](crate::HistoryPolicy::kept_for) for this time; `None` if the estimate is valid until the first quarter of
    /// the next period is over, since the relay can be measured there.
    ///
    /// The slot is a quarter of a period before the estimate expires, but at least a quarter of the period is left for the
    /// draw, so that the time is secret. An estimate that is kept for longer than two periods and a quarter counts as one
    /// that expires then.
    #[must_use]
    pub fn due_by(&self, measured_unix_s: u64, kept_for: Duration) -> Option<u32> {
        let quarter_s = self.length_s / 4;
        let kept_s = kept_for.as_secs().min(2 * self.length_s + quarter_s);
        let expires_unix_s = measured_unix_s + kept_s;
        if expires_unix_s >= self.end_unix_s() + quarter_s {
            return None;
        }
        let by = expires_unix_s.saturating_sub(quarter_s);
        Some(self.slot(by.max(self.begin_unix_s + quarter_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HistoryPolicy;

    #[test]
    fn all_times_within_a_period_give_the_same_bounds() {
        let period = |begin_unix_s| Bounds { begin_unix_s, length_s: 86_400, slot_s: 71 };
        let at = period(1_800_057_600);
        assert_eq!(Bounds::at(1_800_057_600 + 70_000, Duration::from_secs(86_400), 71), at);
        assert_eq!((at.slots(), at.end_unix_s()), (1216, 1_800_144_000));
        assert_eq!(
            [0, 70, 71, 86_399].map(|offset_s| at.slot(at.begin_unix_s + offset_s)),
            [0, 0, 1, 1216]
        );
        assert_eq!(at.slot(0), 0, "a clock that was set back");
        // Measured in this period, at the beginning and just before that of the last one, and a day before that.
        let ago = [0, 86_400, 86_401, 129_600, 172_800];
        let kept_for = HistoryPolicy::default().kept_for;
        let due_by = ago.map(|ago| at.due_by(at.begin_unix_s - ago, kept_for));
        assert_eq!(due_by, [None, None, Some(1216), Some(608), Some(304)]);
        let begin = at.begin_unix_s;
        let over = [begin - 72, begin - 71, begin, begin + 86_399, begin + 86_400];
        assert_eq!(over.map(|now| at.is_over(now)), [true, false, false, false, true]);
    }

    /// In periods of more than a day, estimates are kept for less than two periods and a quarter.
    #[test]
    fn each_relay_is_measured_before_its_estimate_expires_whatever_the_length_of_periods() {
        const BEGIN: u64 = 1_800_057_600;
        let day_s = HistoryPolicy::PERIOD_MAX.as_secs() / 2;
        for length_s in [3600, day_s, day_s + 3600, day_s * 3 / 2, 2 * day_s] {
            let kept_for = HistoryPolicy::over(Duration::from_secs(length_s)).kept_for;
            let at = |begin_unix_s| Bounds { begin_unix_s, length_s, slot_s: 33 };
            let (last, current) = (at(BEGIN - length_s), at(BEGIN));
            for measured in (BEGIN - 2 * length_s..current.end_unix_s()).step_by(300) {
                if measured < last.begin_unix_s && last.due_by(measured, kept_for).is_some() {
                    // There is a newer estimate.
                    continue;
                }
                let by = match current.due_by(measured, kept_for) {
                    Some(slot) => current.slot_begins_unix_s(slot),
                    // The end of the first quarter of the next period.
                    None => current.end_unix_s() + length_s / 4,
                };
                let expires = measured + kept_for.as_secs();
                assert!(by <= expires, "{length_s}: {measured}, by {by}, expires {expires}");
                assert!(measured < BEGIN || by > current.end_unix_s(), "measured in this period");
            }
        }
    }
}
