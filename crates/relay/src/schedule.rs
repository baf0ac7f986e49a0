//! When to make a new descriptor, and when to send it to whom. Pure: time is an argument.

use onion::router::RateLimit;
use onion::{Duration, Instant};

/// A descriptor this old is replaced: tor's `FORCE_REGENERATE_DESCRIPTOR_INTERVAL`. Authorities
/// forget a relay whose descriptor is a day old.
const LONGEST_AGE: Duration = Duration::from_secs(18 * 3600);
/// How soon a change of the observed bandwidth may be announced: tor's `MAX_BANDWIDTH_CHANGE_FREQ`.
const OBSERVED_PAUSE: Duration = Duration::from_secs(3 * 3600);
/// For so long after the relay has tested its bandwidth, what comes of that may be announced at once: it takes ten seconds to be
/// counted, and what was carried before the test would otherwise hold for three hours.
const TESTED: Duration = Duration::from_secs(60);
/// The first pause after an authority did not answer; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The pause after an authority has refused: it needs time to change its mind.
const REFUSED_PAUSE: Duration = Duration::from_secs(3600);

/// What of a descriptor changes while the relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The announced limit.
    pub(crate) limit: RateLimit,
    /// The observed bandwidth, in bytes/s.
    pub(crate) observed_bytes_s: u64,
}

impl Content {
    /// More than twice or less than half as much: anything less is no news to an authority.
    const fn is_observed_otherwise(self, before: Self) -> bool {
        let (now, then) = (self.observed_bytes_s, before.observed_bytes_s);
        now / 2 > then || now < then / 2
    }
}

/// How an attempt at sending a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The authority has it, or one that says the same.
    Known,
    /// It refused it.
    Refused,
    /// It did not answer.
    Failed,
}

/// What an authority still has to get.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due: Option<Instant>,
    pause: Duration,
}

/// Keeps the times of one relay's publishing.
#[derive(Debug)]
pub(crate) struct Schedule {
    made: Option<(Instant, Content)>,
    /// The bandwidth has just been tested.
    tested_until: Option<Instant>,
    authorities: Vec<Pending>,
}

impl Schedule {
    pub(crate) fn new(authorities: usize) -> Self {
        let pending = Pending { due: None, pause: FIRST_PAUSE };
        Self { made: None, tested_until: None, authorities: vec![pending; authorities] }
    }

    /// What the present descriptor says.
    pub(crate) fn content(&self) -> Option<Content> {
        self.made.map(|(_, content)| content)
    }

    /// Whether a new descriptor is due.
    pub(crate) fn wants_descriptor(&self, now: Instant, content: Content) -> bool {
        let Some((at, before)) = self.made else { return true };
        let age = now - at;
        let may_tell =
            before.observed_bytes_s == 0 || age >= OBSERVED_PAUSE || self.is_being_observed(now);
        let is_observed_anew = may_tell && content.is_observed_otherwise(before);
        age >= LONGEST_AGE || content.limit != before.limit || is_observed_anew
    }

    /// The relay has tested its bandwidth.
    pub(crate) fn handle_tested(&mut self, now: Instant) {
        self.tested_until = Some(now + TESTED);
    }

    /// Whether what the test comes to is still being observed.
    pub(crate) fn is_being_observed(&self, now: Instant) -> bool {
        self.tested_until.is_some_and(|until| now < until)
    }

    /// A descriptor has been made: everybody is to get it.
    pub(crate) fn descriptor_made(&mut self, now: Instant, content: Content) {
        self.made = Some((now, content));
        self.authorities.fill(Pending { due: Some(now), pause: FIRST_PAUSE });
    }

    /// The descriptor of now is of no use: a new one is due.
    pub(crate) fn discard_descriptor(&mut self) {
        self.made = None;
    }

    /// The next authority to send to, by its place in the list.
    pub(crate) fn due(&self, now: Instant) -> Option<usize> {
        self.authorities.iter().position(|pending| pending.due.is_some_and(|due| due <= now))
    }

    /// An attempt has ended.
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

    /// When to look again, if nothing changes before.
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
    fn what_a_test_of_the_bandwidth_comes_to_is_told_at_once() {
        let mut schedule = Schedule::new(1);
        // What it was reached with was counted before the test was over.
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
    fn what_was_carried_is_announced_at_first_at_once_then_seldom() {
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
    fn each_authority_gets_it_once_and_later_again_if_need_be() {
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
        // A new descriptor begins anew, also one that is due because the last one was no good.
        schedule.discard_descriptor();
        assert!(schedule.wants_descriptor(at(17 * HOUR), content(10.0, 0)));
        schedule.descriptor_made(at(18 * HOUR), content(10.0, 0));
        assert_eq!(schedule.due(at(18 * HOUR)), Some(0));
        schedule.handle_sent(at(18 * HOUR), 0, Sent::Failed);
        assert_eq!(schedule.due(at(18 * HOUR)), Some(1));
        schedule.handle_sent(at(18 * HOUR), 9, Sent::Failed);
    }
}
