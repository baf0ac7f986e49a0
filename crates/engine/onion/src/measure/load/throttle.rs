use crate::time::{Duration, Instant};

/// How long the assigned rate has blocked a load generator, over all its connections: a time in which several
/// are blocked counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    /// The total of past times.
    total: Duration,
    /// Since when a connection is blocked, if one is.
    since: Option<Instant>,
}

impl Throttle {
    pub(super) const fn holds(&self) -> bool {
        self.since.is_some()
    }

    /// A connection could send if the rate allowed it.
    pub(super) fn hold(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// All connections may try again.
    pub(super) fn release(&mut self, now: Instant) {
        self.total = self.total(now);
        self.since = None;
    }

    /// The total so far.
    pub(super) fn total(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_throttled_intervals_count_once() {
        let mut throttle = Throttle::default();
        let at = Instant::from_millis;
        let ms = Duration::from_millis;
        throttle.hold(at(10));
        throttle.hold(at(13)); // another connection
        assert!(throttle.holds());
        assert_eq!((throttle.total(at(10)), throttle.total(at(14))), (ms(0), ms(4)));
        throttle.release(at(15));
        assert!(!throttle.holds());
        throttle.release(at(16));
        assert_eq!(throttle.total(at(20)), ms(5));
        throttle.hold(at(20));
        throttle.release(at(20));
        throttle.hold(at(20));
        throttle.release(at(22));
        assert_eq!(throttle.total(at(99)), ms(7));
    }
}
