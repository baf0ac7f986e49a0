//! A relay's answers to an order, and the schedule of attempts. Only in echo mode.

use crate::failure::Failure;
use alloc::string::ToString;
use onion::measure::order::OrderFailure;
use onion::measure::protocol::ErrorCode;
use onion::{Duration, Instant};

/// The delay before a busy relay is asked for the second time; it doubles with each attempt. The relay may still be
/// cleaning up after our last round, or finishing another team's.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// The interval between attempts with a relay that others are measuring.
#[derive(Clone, Copy, Debug)]
pub struct OrderRetries {
    deadline: Instant,
    pause: Duration,
    /// The next attempt, if one is due.
    again_at: Option<Instant>,
}

impl OrderRetries {
    /// The relay must have accepted by `deadline`.
    #[must_use]
    pub const fn until(deadline: Instant) -> Self {
        Self { deadline, pause: BUSY_PAUSE, again_at: None }
    }

    /// By when the relay must have accepted.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// An attempt has failed. Returns whether there will be another.
    pub fn handle_failure(&mut self, now: Instant, failure: &OrderFailure) -> bool {
        let is_busy = matches!(failure, OrderFailure::Refused { code: ErrorCode::BUSY, .. });
        let at = now + self.pause;
        if !is_busy || at >= self.deadline {
            return false;
        }
        self.again_at = Some(at);
        self.pause *= 2;
        true
    }

    /// When to call [`poll_attempt`](Self::poll_attempt).
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.again_at
    }

    /// Whether the next attempt is due; returns true once for each.
    pub fn poll_attempt(&mut self, now: Instant) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }
}

impl From<&OrderFailure> for Failure {
    fn from(failure: &OrderFailure) -> Self {
        let detail = failure.to_string();
        match failure {
            OrderFailure::NoLink { .. }
            | OrderFailure::LinkTimedOut
            | OrderFailure::NotAnswered
            | OrderFailure::Closed { was_accepted: false, .. } => Self::RelayUnreachable { detail },
            OrderFailure::NotValidNow { .. }
            | OrderFailure::Refused {
                code: ErrorCode::EXPIRED | ErrorCode::TOO_FAR_AHEAD, ..
            } => Self::ClocksDiffer { detail },
            OrderFailure::Closed { was_accepted: true, .. } => Self::RelayClosed { detail },
            OrderFailure::Refused { code: ErrorCode::NO_TRAFFIC, .. } => {
                Self::NothingReceived { detail }
            }
            OrderFailure::Refused { code, .. } if ends_accepted_measurement(*code) => {
                Self::RelayClosed { detail }
            }
            OrderFailure::Refused { code: ErrorCode::BUSY | ErrorCode::QUOTA_EXCEEDED, .. } => {
                Self::RelayNotNow { detail }
            }
            OrderFailure::Refused { .. } => Self::ConsentRefused { detail },
            OrderFailure::Violation(_) => Self::RelayBrokeProtocol { detail },
        }
    }
}

/// Whether the code means that an accepted measurement ended early, for another reason than missing traffic
/// ([`Failure::NothingReceived`]).
#[must_use]
pub fn ends_accepted_measurement(code: ErrorCode) -> bool {
    let all = [
        ErrorCode::TIMED_OUT,
        ErrorCode::CALLED_OFF,
        ErrorCode::VIOLATION,
        ErrorCode::OUT_OF_ORDER,
    ];
    all.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn refused(code: ErrorCode) -> OrderFailure {
        OrderFailure::Refused { code, text: String::new() }
    }

    #[test]
    fn not_now_is_distinguished_from_a_refusal() {
        for code in ErrorCode::ALL {
            let failure = Failure::from(&refused(*code));
            match code.get() {
                5 | 6 => assert!(matches!(failure, Failure::ClocksDiffer { .. }), "{failure}"),
                8 | 10 => assert!(matches!(failure, Failure::RelayNotNow { .. }), "{failure}"),
                20 => assert!(matches!(failure, Failure::NothingReceived { .. }), "{failure}"),
                16..=19 => assert!(matches!(failure, Failure::RelayClosed { .. }), "{failure}"),
                _ => assert!(matches!(failure, Failure::ConsentRefused { .. }), "{failure}"),
            }
        }
        let problem = "certificate of type 5: has expired".to_string();
        let failure = Failure::from(&OrderFailure::NotValidNow { problem });
        assert!(matches!(failure, Failure::ClocksDiffer { .. }), "{failure}");
        assert!(
            failure.is_decline() && !failure.is_about_relay(),
            "nobody knows whose clock it is"
        );
    }

    #[test]
    fn only_a_busy_relay_is_asked_again_and_a_few_times() {
        let mut now = Instant::ORIGIN;
        let mut retries = OrderRetries::until(now + Duration::from_secs(10));
        assert!(!retries.handle_failure(now, &refused(ErrorCode::QUOTA_EXCEEDED)));
        assert!(!retries.handle_failure(now, &OrderFailure::LinkTimedOut));
        assert!(!retries.poll_attempt(retries.deadline()), "nothing is due");
        let mut attempts = 0;
        while retries.handle_failure(now, &refused(ErrorCode::BUSY)) {
            assert!(!retries.poll_attempt(now), "not at once");
            now = retries.poll_timeout().expect("a time");
            assert!(retries.poll_attempt(now) && !retries.poll_attempt(now), "once");
            attempts += 1;
        }
        assert!(now < retries.deadline());
        assert_eq!(attempts, 4, "after 0.5, 1, 2 and 4 seconds");
    }
}
