use crate::time::{Duration, Instant};

/// Cells more than fit on the way that may wait at the next hop: the paper's γ (CircuitStart, §2).
const QUEUED_MAX: f64 = 4.0;

/// The cells of one round of a ramp-up: sent as fast as they come, and watched as they are passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// The number of its first cell, among all that are ever sent.
    first: u64,
    len: u32,
    sent: u32,
    passed: u32,
    first_passed: Instant,
    /// Most cells under way while it went.
    peak: u32,
}

/// What a cell that was passed on says of its train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// There is more to come.
    Going,
    /// All of it has passed, and nothing had to wait for long.
    Whole,
    /// So many have passed, and with that many under way the next hop is as busy as it can be.
    Full(u32),
}

impl Train {
    pub(super) const fn new(first: u64, len: u32) -> Self {
        Self { first, len, sent: 0, passed: 0, first_passed: Instant::ORIGIN, peak: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// Cells of it that were not sent yet.
    pub(super) const fn left(&self) -> u32 {
        self.len - self.sent
    }

    pub(super) fn handle_sent(&mut self, cells: u32, in_flight: u32) {
        self.sent += cells.min(self.left());
        self.peak = self.peak.max(in_flight);
    }

    /// Whether the window was what held it back, and not the lack of cells or the own link.
    pub(super) const fn has_filled_window(&self) -> bool {
        self.peak.saturating_mul(2) >= self.len
    }

    /// The cell with this number was passed on, after such a time; `base` is the least ever.
    ///
    /// The paper compares the round trip of "the latest round" with the least. A train is sent at once, so each of its cells
    /// waits behind those before it, at the slowest place on its way: that is the train's length, and no queue. What a window
    /// of *k* cells would see is the time in which the slowest place passes *k*. With the plain time of the latest cell the ramp would
    /// end at twice the square root of what fits on the way; with that of the first one as soon as the next hop's own ramp
    /// lags a little behind. Where no more than a few cells wait, it is the source that is slow.
    pub(super) fn handle_passed(
        &mut self,
        now: Instant,
        number: u64,
        rtt: Duration,
        base: Duration,
    ) -> Sign {
        if number < self.first {
            return Sign::Going;
        }
        self.passed += 1;
        if self.passed == 1 {
            self.first_passed = now;
        }
        let passed = f64::from(self.passed);
        let spacing = (now - self.first_passed).as_secs_f64() / (passed - 1.0).max(1.0);
        let waited = rtt.saturating_sub(base).as_secs_f64();
        let is_full = queued_cells(passed, spacing * passed, base) > QUEUED_MAX;
        if is_full && waited > spacing * QUEUED_MAX {
            Sign::Full(self.passed)
        } else if self.passed >= self.len {
            Sign::Whole
        } else {
            Sign::Going
        }
    }
}

/// The paper's diff: how many of a window's cells wait, by a round trip of `rtt_s` seconds beside the least.
pub(super) fn queued_cells(window: f64, rtt_s: f64, base: Duration) -> f64 {
    window * rtt_s / base.as_secs_f64().max(1e-9) - window
}
