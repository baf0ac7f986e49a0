use onion::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock in nanoseconds since an origin.
///
/// Copies share the origin, so that all threads of a process agree on the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock whose origin is the present.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// Sleeps. Not for waiting for events: only a driver sleeps, to batch them.
    #[expect(clippy::disallowed_methods, reason = "coalescing needs time to pass, not an event")]
    pub(crate) fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// The time since the origin.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ORIGIN + self.origin.elapsed()
    }

    /// Converts an instant to microseconds since 1970 by the calendar clock, for other processes.
    #[must_use]
    pub fn unix_us(&self, at: Instant) -> u64 {
        let unix = unix_at(at, self.now(), unix_time());
        u64::try_from(unix.as_micros()).unwrap_or(u64::MAX)
    }

    /// Converts microseconds since 1970 to an instant. Wrong by any adjustment of the calendar
    /// clock in between.
    #[must_use]
    pub fn at_unix_us(&self, unix_us: u64) -> Instant {
        instant_at(Duration::from_micros(unix_us), self.now(), unix_time())
    }
}

/// Converts `at` to time since 1970, where the clock reads `now` at `unix`.
fn unix_at(at: Instant, now: Instant, unix: Duration) -> Duration {
    unix.saturating_sub(now.saturating_since(at)) + at.saturating_since(now)
}

/// Converts back; the origin for earlier times.
fn instant_at(at: Duration, now: Instant, unix: Duration) -> Instant {
    let passed = (now - Instant::ORIGIN).saturating_sub(unix.saturating_sub(at));
    Instant::ORIGIN + passed + at.saturating_sub(unix)
}

/// Seconds since 1970, for anything with a date: certificates, documents, results.
#[must_use]
pub fn unix_time_s() -> u64 {
    unix_time().as_secs()
}

/// Time since 1970.
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the calendar")]
fn unix_time() -> Duration {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Processor time used by the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Time that the calling thread was runnable but waited for a processor; zero if the kernel does
/// not count it.
#[must_use]
pub fn thread_wait_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    // Time on a processor, time in the run queue, number of timeslices; nanoseconds.
    let waited = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_survives_a_round_trip_through_unix_time() {
        let unix = Duration::from_micros(1_700_000_000_123_456);
        let (here, there) = (Instant::from_millis(5_000), Instant::from_millis(90_000));
        for (at_ms, unix_ms) in [(4_000, -1_000), (5_000, 0), (5_700, 700)] {
            let by_calendar = unix_at(Instant::from_millis(at_ms), here, unix);
            assert_eq!(
                by_calendar.as_micros().cast_signed(),
                1_700_000_000_123_456 + unix_ms * 1000
            );
            // Read three seconds later.
            let later = Duration::from_secs(3);
            let back = instant_at(by_calendar, there + later, unix + later);
            assert_eq!(back, Instant::from_millis(90_000 + at_ms - 5_000));
        }
        assert_eq!(instant_at(Duration::ZERO, here, unix), Instant::ORIGIN);
    }
}
