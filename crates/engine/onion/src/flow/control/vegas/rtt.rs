/// A round-trip time this many times the average is discarded: a clock or the machine was suspended.
const JUMP_RATIO: u64 = 5000;

/// The round-trip times of a circuit (proposal 324 §2.1), in microseconds. Zero for none yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    /// The moving average.
    pub(super) average_us: u64,
    /// The last reliable one.
    pub(super) last_us: u64,
    /// The minimum of the average.
    pub(super) min_us: u64,
    /// Whether the last one was zero.
    pub(super) is_clock_stalled: bool,
}

impl RoundTrips {
    /// Adds a round-trip time to the average over `count`. With `reset_percent`, the minimum is forgotten to
    /// that degree: the window cannot shrink any further, so the minimum may have been an outlier.
    ///
    /// Returns false if it is unreliable, and nothing has changed.
    pub(super) fn add(
        &mut self,
        sample_us: u64,
        count: u64,
        reset_percent: Option<u32>,
        is_in_slow_start: bool,
    ) -> bool {
        if self.is_stalled(sample_us, is_in_slow_start) {
            return false;
        }
        self.last_us = sample_us;
        self.average_us = match self.average_us {
            0 => sample_us,
            before => {
                let sum = 2 * u128::from(sample_us) + u128::from(count - 1) * u128::from(before);
                u64::try_from(sum / u128::from(count + 1)).unwrap_or(u64::MAX)
            }
        };
        self.min_us = match (self.min_us, reset_percent) {
            (0, _) => self.average_us,
            (min, Some(percent)) => mix(self.average_us, min, u64::from(percent.min(100))),
            (min, None) => min.min(self.average_us),
        };
        true
    }

    /// Whether the clock has stalled or jumped (§2.1.1). A new minimum is only discarded after a stall.
    pub(super) const fn is_stalled(&mut self, sample_us: u64, is_in_slow_start: bool) -> bool {
        if sample_us == 0 {
            self.is_clock_stalled = true;
            return true;
        }
        if is_in_slow_start || self.average_us == 0 {
            return false;
        }
        if self.average_us > sample_us.saturating_mul(JUMP_RATIO) {
            return self.is_clock_stalled;
        }
        if sample_us > self.average_us.saturating_mul(JUMP_RATIO) {
            return true;
        }
        self.is_clock_stalled = false;
        false
    }
}

/// `percent` of the larger and the rest of the smaller, each rounded down.
fn mix(a: u64, b: u64, percent: u64) -> u64 {
    let part = |value: u64, percent: u64| {
        u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
    };
    part(a.max(b), percent).saturating_add(part(a.min(b), 100 - percent))
}
