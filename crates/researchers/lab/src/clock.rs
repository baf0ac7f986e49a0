//! The only module of this crate that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one reader of the monotonic clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The Unix time in seconds; zero if the wall clock is before 1970.
#[expect(clippy::disallowed_methods, reason = "the shell's one reader of the wall clock")]
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    start: Instant,
    allowed: Duration,
}

impl Deadline {
    /// The deadline `allowed` from now.
    pub(crate) fn after(allowed: Duration) -> Self {
        Self { start: now(), allowed }
    }

    /// The remaining time; zero after the deadline.
    pub(crate) fn left(self) -> Duration {
        self.allowed.saturating_sub(self.elapsed())
    }

    /// The remaining time, but at most `step`: how long one step of a loop may wait.
    pub(crate) fn step(self, step: Duration) -> Duration {
        self.left().min(step)
    }

    /// Whether the deadline has passed.
    pub(crate) fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// Time since the deadline was set.
    pub(crate) fn elapsed(self) -> Duration {
        now().saturating_duration_since(self.start)
    }
}
