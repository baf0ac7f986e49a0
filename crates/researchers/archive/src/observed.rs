//! Models how C tor computes and publishes its observed bandwidth. Time is an argument.
//!
//! Constants and rules are those of tor 0.2.9 to 0.4.9: `src/feature/stats/bwhist.c` (`find_largest_max`, `bwhist_bandwidth_assess`) and
//! `src/feature/relay/router.c` (`mark_my_descriptor_dirty_if_too_old`, `check_descriptor_bandwidth_changed`). Two of them are easily
//! overlooked:
//!
//! - The best ten seconds of an interval of 24 hours count only after its end, and then for five intervals. The first interval begins
//!   with the relay's first start. So the observed bandwidth of a flooded relay rises up to a day later. (Since 0.4.5 the current
//!   interval counts after `TestingMinTimeToReportBandwidth`, which is a day by default, and 0 in testing networks.)
//! - A change by a factor of two is published at once only in a relay's first day of uptime. An older relay waits for its next regular
//!   descriptor.

/// Length of an interval: `NUM_SECS_BW_SUM_INTERVAL`.
pub(crate) const INTERVAL_S: u64 = 24 * 3600;
/// Complete intervals that count: `NUM_TOTALS`.
pub(crate) const INTERVALS: usize = 5;
/// Age at which a descriptor is replaced: `FORCE_REGENERATE_DESCRIPTOR_INTERVAL`.
pub(crate) const DESCRIPTOR_AGE_S: u64 = 18 * 3600;
/// Minimum time between two descriptors that are published because of changed bandwidth: `MAX_BANDWIDTH_CHANGE_FREQ`.
pub(crate) const CHANGE_PAUSE_S: u64 = 3 * 3600;
/// Uptime after which a relay no longer publishes changes early: `MAX_UPTIME_BANDWIDTH_CHANGE`.
pub(crate) const CHANGE_UPTIME_S: u64 = 24 * 3600;
/// A change by more than this factor is large: `BANDWIDTH_CHANGE_FACTOR`.
pub(crate) const CHANGE_FACTOR: u32 = 2;

/// The observed bandwidth of a relay, and its publication.
#[derive(Clone, Debug)]
pub(crate) struct ObservedBandwidth {
    started_s: u64,
    interval_ends_s: u64,
    /// The largest value in the current interval.
    current_byte_per_s: u32,
    /// The largest values in the last complete intervals, as a ring buffer.
    maxima_byte_per_s: [u32; INTERVALS],
    next: usize,
    /// Time and observed bandwidth of the last descriptor.
    published: Option<(u64, u32)>,
    /// When a change was last published.
    changed_s: Option<u64>,
}

impl ObservedBandwidth {
    /// State of a relay that starts for the first time.
    #[must_use]
    pub(crate) const fn started(now_s: u64) -> Self {
        Self {
            started_s: now_s,
            interval_ends_s: now_s + INTERVAL_S,
            current_byte_per_s: 0,
            maxima_byte_per_s: [0; INTERVALS],
            next: 0,
            published: None,
            changed_s: None,
        }
    }

    /// Notes the mean of ten seconds, in the direction with less traffic.
    pub(crate) fn note(&mut self, now_s: u64, byte_per_s: u32) {
        self.end_intervals(now_s);
        self.current_byte_per_s = self.current_byte_per_s.max(byte_per_s);
    }

    fn end_intervals(&mut self, now_s: u64) {
        // After this number of intervals, no earlier value counts.
        let mut left = INTERVALS + 1;
        while now_s >= self.interval_ends_s && left > 0 {
            if let Some(maximum) = self.maxima_byte_per_s.get_mut(self.next) {
                *maximum = std::mem::take(&mut self.current_byte_per_s);
            }
            self.next = (self.next + 1) % INTERVALS;
            self.interval_ends_s += INTERVAL_S;
            left -= 1;
        }
        while now_s >= self.interval_ends_s {
            self.interval_ends_s += INTERVAL_S;
        }
    }

    /// The observed bandwidth, byte/s.
    #[must_use]
    pub(crate) fn assess(&self) -> u32 {
        self.maxima_byte_per_s.iter().copied().max().unwrap_or_default()
    }

    /// Publishes a new descriptor if one is due, and returns its observed bandwidth.
    pub(crate) fn poll_descriptor(&mut self, now_s: u64) -> Option<u32> {
        self.end_intervals(now_s);
        let observed = self.assess();
        let is_due = match self.published {
            None => true,
            Some((at_s, _)) if now_s >= at_s + DESCRIPTOR_AGE_S => true,
            Some((_, before)) => {
                let is_change = is_large(before, observed) && self.may_change(now_s, before);
                if is_change {
                    self.changed_s = Some(now_s);
                }
                is_change
            }
        };
        if is_due {
            self.published = Some((now_s, observed));
        }
        is_due.then_some(observed)
    }

    fn may_change(&self, now_s: u64, before: u32) -> bool {
        let is_young = now_s <= self.started_s + CHANGE_UPTIME_S;
        let is_pause_over =
            self.changed_s.is_none_or(|changed_s| now_s > changed_s + CHANGE_PAUSE_S);
        is_young && (is_pause_over || before == 0)
    }

    /// The observed bandwidth in the newest descriptor, byte/s.
    #[must_use]
    pub(crate) fn published_byte_per_s(&self) -> u32 {
        self.published.map_or(0, |published| published.1)
    }
}

fn is_large(before: u32, now: u32) -> bool {
    before != now && (before == 0 || now == 0)
        || now > before.saturating_mul(CHANGE_FACTOR)
        || now < before / CHANGE_FACTOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: u64 = 3600;

    #[test]
    fn ten_seconds_count_after_their_day_and_for_five_days() {
        let mut relay = ObservedBandwidth::started(0);
        relay.note(0, 10);
        relay.note(30 * HOUR, 1000);
        let visible: Vec<u64> = (0..14 * 24)
            .filter(|hour| {
                relay.note(hour * HOUR, if *hour == 30 { 1000 } else { 10 });
                relay.assess() == 1000
            })
            .collect();
        assert_eq!((visible.first(), visible.last(), visible.len()), (Some(&48), Some(&167), 120));
    }

    #[test]
    fn a_young_relay_publishes_changes_after_three_hours_and_an_old_one_only_every_18_hours() {
        let mut relay = ObservedBandwidth::started(0);
        assert_eq!(relay.poll_descriptor(0), Some(0));
        relay.note(HOUR, 100);
        // The first interval ends in the last second in which the relay is young.
        assert_eq!(relay.poll_descriptor(18 * HOUR), Some(0));
        assert_eq!(relay.poll_descriptor(24 * HOUR), Some(100));
        relay.note(25 * HOUR, 1000);
        let published: Vec<(u64, u32)> = (25..120)
            .filter_map(|hour| Some((hour, relay.poll_descriptor(hour * HOUR)?)))
            .collect();
        assert_eq!(published, [(42, 100), (60, 1000), (78, 1000), (96, 1000), (114, 1000)]);
    }

    #[test]
    fn a_week_offline_resets_the_observed_bandwidth() {
        let mut relay = ObservedBandwidth::started(0);
        relay.note(HOUR, 1000);
        relay.note(3000 * HOUR + 1, 10);
        assert_eq!(relay.assess(), 0);
        relay.note(3025 * HOUR, 10);
        assert_eq!(relay.assess(), 10);
    }

    proptest! {
        /// Compares with the definition: the largest value in the last five complete intervals.
        #[test]
        fn the_ring_is_the_largest_of_five_complete_days(
            mut notes in proptest::collection::vec((0_u64..400, 0_u32..1000), 1..60), start in 0_u64..30,
        ) {
            notes.sort_unstable();
            let mut relay = ObservedBandwidth::started(start * HOUR);
            for (index, (hour, value)) in notes.iter().enumerate() {
                let now = (start + hour) * HOUR;
                relay.note(now, *value);
                let today = hour / 24;
                let counts = |(other, value): &(u64, u32)| {
                    let day = other / 24;
                    (day < today && day + 5 >= today).then_some(*value)
                };
                let naive = notes[..=index].iter().filter_map(counts).max().unwrap_or(0);
                prop_assert_eq!(relay.assess(), naive);
            }
        }
    }
}
