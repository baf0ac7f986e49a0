use onion::{Duration, Instant};
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock as the engine wants it: nanoseconds since an origin.
///
/// Copies share the origin, so that all workers of a process agree on the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// Lets `time` pass. Not for waiting for events: only a driver sleeps, to gather more of them.
    #[expect(clippy::disallowed_methods, reason = "coalescing needs time to pass, not an event")]
    pub(crate) fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// The time since the origin.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ORIGIN + self.origin.elapsed()
    }
}

/// Seconds since 1970, for what has dates: certificates, documents, results.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the calendar")]
pub fn unix_time_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Time that the calling thread was ready to run and waited for a processor; zero where the kernel
/// does not count it.
#[must_use]
pub fn thread_wait_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    // Time on a processor, time in the run queue, number of turns; nanoseconds.
    let waited = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}
