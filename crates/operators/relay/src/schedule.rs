//! When to make a descriptor, and when to send it to which authority. Pure: time is an argument.

use onion::router::RateLimit;
use onion::{Duration, Instant};

/// Age at which a descriptor is replaced: tor's `FORCE_REGENERATE_DESCRIPTOR_INTERVAL`. Authorities
/// drop a relay whose descriptor is a day old.
const LONGEST_AGE: Duration = Duration::from_secs(18 * 3600);
/// The minimum interval for announcing changes of the observed bandwidth: tor's
/// `MAX_BANDWIDTH_CHANGE_FREQ`.
const OBSERVED_PAUSE: Duration = Duration::from_secs(3 * 3600);
/// After a bandwidth test, changes may be announced at once for this time: counting takes ten
/// seconds, and the value from before the test would otherwise stay for three hours.
const TESTED: Duration = Duration::from_secs(60);
/// The first pause after an authority did not answer. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The maximum pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The pause after a refusal: the reason may take time to go away.
const REFUSED_PAUSE: Duration = Duration::from_secs(3600);

/// The content of a descriptor that changes at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The announced rate limit.
    pub(crate) limit: RateLimit,
    /// The observed bandwidth, in bytes/s.
    pub(crate) observed_bytes_s: u64,
}

impl Content {
    /// A change by more than a factor of two: authorities ignore smaller ones.
    const fn is_observed_otherwise(self, before: Self) -> bool {
        let (now, then) = (self.observed_bytes_s, before.observed_bytes_s);
        now / 2 > then || now < then / 2
    }
}

/// The outcome of sending a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The authority has it, or an equivalent one.
    Known,
    /// It has refused it.
    Refused,
    /// It did not answer.
    Failed,
}

/// What an authority still has to receive.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due: Option<Instant>,
    pause: Duration,
}

/// The schedule of one relay's publishing.
#[derive(Debug)]
pub(crate) struct Schedule {
    made: Option<(Instant, Content)>,
    /// When the bandwidth was tested.
    tested_until: Option<Instant>,
    authorities: Vec<Pending>,
}

impl Schedule {
    pub(crate) fn new(authorities: usize) -> Self {
        let pending = Pending { due: None, pause: FIRST_PAUSE };
        Self { made: None, tested_until: None, authorities: vec![pending; authorities] }
    }

    /// The content of the current descriptor.
    pub(crate) fn content(&self) -> Option<Content> {
        self.made.map(|(_, content)| content)
    }

    /// Whether a new descriptor is due.
    pub(crate) fn wants_descriptor(&self, now: Instant, content: Content) -> bool {
        let Some((at, before)) = self.made else { return true };
        let age = now - at;
        let may_announce =
            before.observed_bytes_s == 0 || age >= OBSERVED_PAUSE || self.is_being_observed(now);
        let is_observed_anew = may_announce && content.is_observed_otherwise(before);
        age >= LONGEST_AGE || content.limit != before.limit || is_observed_anew
    }

    /// Records a bandwidth test.
    pub(crate) fn handle_tested(&mut self, now: Instant) {
        self.tested_until = Some(now + TESTED);
    }

    /// Whether the result of a bandwidth test is still being observed.
    pub(crate) fn is_being_observed(&self, now: Instant) -> bool {
        self.tested_until.is_some_and(|until| now < until)
    }

    /// Records a new descriptor, to be sent to all authorities.
    pub(crate) fn descriptor_made(&mut self, now: Instant, content: Content) {
        self.made = Some((now, content));
        self.authorities.fill(Pending { due: Some(now), pause: FIRST_PAUSE });
    }

    /// Discards the current descriptor: a new one is due.
    pub(crate) fn discard_descriptor(&mut self) {
        self.made = None;
    }

    /// The next authority to send to, by its index.
    pub(crate) fn due(&self, now: Instant) -> Option<usize> {
        self.authorities.iter().position(|pending| pending.due.is_some_and(|due| due <= now))
    }

    /// Records the outcome of an attempt.
    pub(crate) fn handle_sent(&mut self, now: Instant, authority: usize, sent: Sent) {
        let Some(pending) = self.authorities.get_mut(authority) else { return };
        match sent {
            Sent::Known => pending.due = None,
            Sent::Refused => pending.due = Some(now + REFUSED_PAUSE),
            Sent::Failed => {
                pending.due = Some(now + pending.pause);
                pending.pause = (pending.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// When to check again, if nothing changes before.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let age = self.made.map(|(at, _)| at + LONGEST_AGE);
        self.authorities.iter().filter_map(|pending| pending.due).chain(age).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;

    fn content(mbit: f64, observed_bytes_s: u64) -> Content {
        let rate = Rate::from_mbit_per_s(mbit);
        Content { limit: RateLimit { rate, burst_bytes: rate.as_byte_per_s() }, observed_bytes_s }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    const HOUR: u64 = 3600;

    #[test]
    fn the_result_of_a_bandwidth_test_is_announced_at_once() {
        let mut schedule = Schedule::new(1);
        // Traffic of the reachability test was counted before the end of the test.
        schedule.descriptor_made(at(0), content(10.0, 300));
        assert!(!schedule.wants_descriptor(at(10), content(10.0, 51_400)));
        schedule.handle_tested(at(10));
        assert!(schedule.wants_descriptor(at(11), content(10.0, 5_000)));
        schedule.descriptor_made(at(11), content(10.0, 5_000));
        assert!(schedule.wants_descriptor(at(20), content(10.0, 51_400)));
        schedule.descriptor_made(at(20), content(10.0, 51_400));
        assert!(!schedule.wants_descriptor(at(21), content(10.0, 60_000)), "not much more");
        assert!(!schedule.wants_descriptor(at(71), content(10.0, 600_000)), "by itself");
    }

    #[test]
    fn a_descriptor_is_made_at_once_and_again_after_18_hours_or_with_another_rate() {
        let mut schedule = Schedule::new(1);
        assert!(schedule.wants_descriptor(at(0), content(10.0, 0)));
        schedule.descriptor_made(at(0), content(10.0, 0));
        assert!(!schedule.wants_descriptor(at(18 * HOUR - 1), content(10.0, 0)));
        assert!(schedule.wants_descriptor(at(18 * HOUR), content(10.0, 0)));
        assert!(schedule.wants_descriptor(at(1), content(11.0, 0)));
        let mut burst = content(10.0, 0);
        burst.limit.burst_bytes += 1;
        assert!(schedule.wants_descriptor(at(1), burst));
    }

    #[test]
    fn observed_bandwidth_is_announced_at_once_at_first_and_then_rarely() {
        let mut schedule = Schedule::new(1);
        schedule.descriptor_made(at(0), content(10.0, 0));
        assert!(!schedule.wants_descriptor(at(1), content(10.0, 1)));
        assert!(schedule.wants_descriptor(at(1), content(10.0, 2)));
        schedule.descriptor_made(at(1), content(10.0, 1000));
        for (observed, is_otherwise) in
            [(2001, false), (2002, true), (500, false), (499, true), (0, true)]
        {
            let content = content(10.0, observed);
            assert!(!schedule.wants_descriptor(at(3 * HOUR), content), "{observed}");
            let wanted = schedule.wants_descriptor(at(3 * HOUR + 1), content);
            assert_eq!(wanted, is_otherwise, "{observed}");
        }
    }

    #[test]
    fn each_authority_gets_a_descriptor_once_and_again_after_a_failure() {
        let mut schedule = Schedule::new(3);
        assert_eq!((schedule.due(at(0)), schedule.timeout()), (None, None));
        schedule.descriptor_made(at(0), content(10.0, 0));
        assert_eq!((schedule.due(at(0)), schedule.timeout()), (Some(0), Some(at(0))));
        schedule.handle_sent(at(0), 0, Sent::Known);
        assert_eq!(schedule.due(at(0)), Some(1));
        schedule.handle_sent(at(1), 1, Sent::Refused);
        assert_eq!(schedule.due(at(1)), Some(2));
        let mut now = at(1);
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
            schedule.handle_sent(now, 2, Sent::Failed);
            let next = now + Duration::from_secs(pause);
            assert_eq!((schedule.due(now), schedule.timeout()), (None, Some(next)));
            now = next;
            assert_eq!(schedule.due(now), Some(2));
        }
        schedule.handle_sent(now, 2, Sent::Known);
        assert_eq!(schedule.due(at(HOUR)), None);
        assert_eq!(schedule.due(at(HOUR + 1)), Some(1));
        schedule.handle_sent(at(HOUR + 1), 1, Sent::Known);
        assert_eq!((schedule.due(at(17 * HOUR)), schedule.timeout()), (None, Some(at(18 * HOUR))));
        // A new descriptor starts without pauses, also one that replaces a refused one.
        schedule.discard_descriptor();
        assert!(schedule.wants_descriptor(at(17 * HOUR), content(10.0, 0)));
        schedule.descriptor_made(at(18 * HOUR), content(10.0, 0));
        assert_eq!(schedule.due(at(18 * HOUR)), Some(0));
        schedule.handle_sent(at(18 * HOUR), 0, Sent::Failed);
        assert_eq!(schedule.due(at(18 * HOUR)), Some(1));
        schedule.handle_sent(at(18 * HOUR), 9, Sent::Failed);
    }
}
