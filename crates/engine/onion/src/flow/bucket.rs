//! Token buckets.

use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// A token bucket: passes bytes at a rate, with a burst of a fixed duration.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    depth_bytes: u64,
    level_bytes: u64,
    /// Bytes that were [charged](Self::charge) beyond the level. Nothing passes until they are earned.
    owed_bytes: u64,
    filled_at: Instant,
}

impl TokenBucket {
    /// A full bucket for `rate`, with a depth of `burst` at that rate and at least `depth_min_bytes`.
    #[must_use]
    pub fn new(rate: Rate, burst: Duration, depth_min_bytes: u64, now: Instant) -> Self {
        let depth_bytes = rate.bytes_in(burst).max(depth_min_bytes);
        Self { rate, depth_bytes, level_bytes: depth_bytes, owed_bytes: 0, filled_at: now }
    }

    /// Bytes that may pass now.
    #[must_use]
    pub fn available_bytes(&mut self, now: Instant) -> u64 {
        let earned = self.rate.bytes_in(now - self.filled_at);
        if earned > 0 {
            let paid = self.owed_bytes.min(earned);
            let level_bytes = self.level_bytes.saturating_add(earned - paid);
            // Time that has not earned a whole byte stays to be counted.
            self.filled_at = if level_bytes >= self.depth_bytes {
                now
            } else {
                let time = self.rate.time_for(earned);
                // Rounded up: otherwise the remainder would be earned again.
                let is_short = self.rate.bytes_in(time) < earned;
                self.filled_at + time + Duration::from_nanos(u64::from(is_short))
            };
            self.owed_bytes -= paid;
            self.level_bytes = level_bytes.min(self.depth_bytes);
        }
        self.level_bytes
    }

    /// Bytes that may pass now if `ahead_bytes` more than available may.
    #[must_use]
    pub fn available_ahead(&mut self, now: Instant, ahead_bytes: u64) -> u64 {
        let level_bytes = self.available_bytes(now);
        level_bytes.saturating_add(ahead_bytes).saturating_sub(self.owed_bytes)
    }

    /// `bytes` have passed; an excess over the available bytes is not remembered.
    pub const fn take(&mut self, bytes: u64) {
        self.level_bytes = self.level_bytes.saturating_sub(bytes);
    }

    /// `bytes` have passed, whether they were available or not: an excess is owed.
    pub fn charge(&mut self, now: Instant, bytes: u64) {
        let excess = bytes.saturating_sub(self.available_bytes(now));
        self.owed_bytes = self.owed_bytes.saturating_add(excess);
        self.take(bytes);
    }

    /// `bytes` more may pass, within the depth of the bucket.
    pub fn give(&mut self, bytes: u64) {
        let paid = self.owed_bytes.min(bytes);
        self.owed_bytes -= paid;
        let level_bytes = self.level_bytes.saturating_add(bytes - paid);
        self.level_bytes = level_bytes.min(self.depth_bytes);
    }

    /// When `bytes` will be available, if nothing passes before.
    #[must_use]
    pub fn available_at(&self, bytes: u64) -> Instant {
        self.available_ahead_at(bytes, 0)
    }

    /// When `bytes` will be [available with an advance](Self::available_ahead), if nothing passes before.
    #[must_use]
    pub fn available_ahead_at(&self, bytes: u64, ahead_bytes: u64) -> Instant {
        let wanted = bytes.min(self.depth_bytes).saturating_add(self.owed_bytes);
        let missing = wanted.saturating_sub(self.level_bytes.saturating_add(ahead_bytes));
        // Rounded up, so that a wake-up at that time is not a nanosecond too early.
        self.filled_at + self.rate.time_for(missing).saturating_add(Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_passes_than_rate_and_burst_allow(
            mbit in 1u64..5000, steps in prop::collection::vec(1u64..3_000_000, 1..200),
        ) {
            let rate = Rate::from_bit_per_s(mbit * 1_000_000);
            let mut bucket = TokenBucket::new(rate, Duration::from_millis(5), 514, Instant::ORIGIN);
            let depth = bucket.depth_bytes;
            let mut now = Instant::ORIGIN;
            let mut passed = 0;
            for step in steps {
                now += Duration::from_nanos(step);
                let bytes = bucket.available_bytes(now);
                bucket.take(bytes);
                passed += bytes;
            }
            let allowed = rate.bytes_in(now - Instant::ORIGIN) + depth;
            prop_assert!(passed <= allowed);
            // A greedy consumer gets everything except what overflowed between its calls.
            let longest_wait = Duration::from_nanos(3_000_000);
            if rate.bytes_in(longest_wait) < depth {
                prop_assert!(passed + depth + 1 >= allowed);
            }
        }

        #[test]
        fn what_is_charged_is_paid_before_anything_passes(
            mbit in 1u64..5000,
            steps in prop::collection::vec((1u64..3_000_000, 0u64..200_000, 0u64..5_000), 1..200),
        ) {
            let rate = Rate::from_bit_per_s(mbit * 1_000_000);
            let mut bucket = TokenBucket::new(rate, Duration::ZERO, 16_384, Instant::ORIGIN);
            let (mut now, mut passed, mut given) = (Instant::ORIGIN, 0, 0);
            for (step, charged, gift) in steps {
                now += Duration::from_nanos(step);
                // Only what is available, then sometimes much more.
                if bucket.available_bytes(now) > 0 {
                    let allowed = rate.bytes_in(now - Instant::ORIGIN) + 16_384 + given;
                    prop_assert!(passed < allowed, "{passed} of {allowed}");
                    bucket.charge(now, charged);
                    passed += charged;
                }
                bucket.give(gift);
                given += gift;
            }
        }

        #[test]
        fn the_predicted_time_is_never_too_early(
            mbit in 1u64..5000, bytes in 1u64..20_000, owed in 0u64..100_000,
        ) {
            let rate = Rate::from_bit_per_s(mbit * 1_000_000);
            let mut bucket = TokenBucket::new(rate, Duration::ZERO, 16_384, Instant::ORIGIN);
            bucket.charge(Instant::ORIGIN, 16_384 + owed);
            let at = bucket.available_at(bytes);
            prop_assert!(bucket.available_bytes(at) >= bytes.min(16_384));
        }
    }
}
