/// A round trip so many times the average is none: a clock or a machine stood still.
const JUMP_RATIO: u64 = 5000;

/// The round trips of a circuit (proposal 324 §2.1), in microseconds. Zero: none yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    /// Moving average.
    pub(super) average_us: u64,
    /// The last one that could be trusted.
    pub(super) last_us: u64,
    /// The shortest that the average has been.
    pub(super) min_us: u64,
    /// The last that could be told was none at all.
    pub(super) is_clock_stalled: bool,
}

impl RoundTrips {
    /// Adds a round trip to the average over `count`. With `reset_percent`, the shortest is to be
    /// forgotten that far: the window cannot shrink any more, so it may have been a lucky one.
    ///
    /// False if it cannot be trusted, and nothing has changed.
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

    /// Whether the clock has stood still or jumped (§2.1.1). A shorter round trip than ever is only
    /// mistrusted after a stall.
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
