use onion::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// The difference between two clocks, or the adjustment of one, up to which nothing changes.
///
/// It is far above what NTP leaves and a message takes, so that no host with a maintained clock exceeds it. It is far
/// below what does harm: an order is valid for ten minutes, certificates and consensuses for hours.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(30);

/// Detects that the calendar clock was set, by comparing it with the time since the machine was started. Threads may share it: each
/// jump is returned once.
///
/// A clock that is slewed is not set, and neither is that of a machine that was suspended.
#[derive(Debug)]
pub struct ClockWatch {
    /// The calendar clock less the time since the start, in milliseconds, as of the last look.
    offset_ms: AtomicI64,
}

/// A jump of the calendar clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// How far it jumped, in seconds; negative if it was set back.
    pub by_s: i64,
}

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the clock jumped by {:+} s", self.by_s)
    }
}

impl ClockWatch {
    /// Starts with the present time.
    #[must_use]
    pub fn start() -> Self {
        Self { offset_ms: AtomicI64::new(offset_ms(unix_time(), boot_time())) }
    }

    /// The jump since the last call, if it exceeds [`CLOCK_TOLERANCE`]. Call it at least once a minute, or slewing adds up.
    pub fn poll(&self) -> Option<ClockJump> {
        self.compare(unix_time(), boot_time())
    }

    fn compare(&self, unix: Duration, boot: Duration) -> Option<ClockJump> {
        let offset = offset_ms(unix, boot);
        let by_ms = offset.saturating_sub(self.offset_ms.swap(offset, Ordering::Relaxed));
        let by_s = (by_ms + by_ms.signum() * 500) / 1000;
        let is_jump = u128::from(by_ms.unsigned_abs()) > CLOCK_TOLERANCE.as_millis();
        is_jump.then_some(ClockJump { by_s })
    }
}

fn offset_ms(unix: Duration, boot: Duration) -> i64 {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    ms(unix).saturating_sub(ms(boot))
}

/// Time since the machine was started, including suspension.
fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
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

    #[test]
    fn a_clock_that_is_set_jumps_once_and_slewing_or_suspension_is_no_jump() {
        let at = Duration::from_secs;
        let watch = ClockWatch { offset_ms: AtomicI64::new(offset_ms(at(5_000_000), at(100))) };
        let mut boot = at(100);
        let mut offset_s: u64 = 4_999_900;
        let mut look = |passed_s, by_s: i64| {
            boot += at(passed_s);
            offset_s = offset_s.saturating_add_signed(by_s);
            watch.compare(boot + at(offset_s), boot).map(|jump| jump.by_s)
        };
        assert_eq!(look(1, 0), None);
        // A day without a look, or suspended.
        assert_eq!(look(86_400, 0), None);
        for _ in 0..100 {
            assert_eq!(look(60, 1), None, "slewed");
        }
        for by_s in
            [31, -31, -130, 130, 7200, -7200, 3 * 86_400, -3 * 86_400, 3_456_000, -3_456_000]
        {
            assert_eq!(look(1, by_s), Some(by_s));
            assert_eq!(look(1, 0), None, "once");
        }
        assert_eq!(look(1, 30), None, "within the tolerance");
        let jump = ClockJump { by_s: -3_455_999 };
        assert_eq!(jump.to_string(), "the clock jumped by -3455999 s");
        assert_eq!(ClockJump { by_s: 130 }.to_string(), "the clock jumped by +130 s");
        assert_eq!(ClockWatch::start().poll(), None);
    }
}
