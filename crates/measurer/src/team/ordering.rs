//! The coordinator's own link to a target that takes part.

use crate::local::{Site, ends_an_accepted_one};
use coordinator::Failure;
use link::{Drive, Driver, DriverOptions, NodeThread, ThreadError, Watch};
use onion::measure::order::{OrderConfig, OrderEvent, OrderFailure, OrderLink};
use onion::measure::protocol::{ClientShare, ErrorCode};
use onion::{Duration, Instant};
use std::iter;

/// What comes of an order.
pub(super) enum OrderReport {
    /// The engine's word.
    Event(OrderEvent),
    /// Our thread failed.
    Broken(String),
}

/// Gives the order at once, on a thread on which `report` is called. Dropping that closes the link, and
/// so ends the measurement.
pub(super) fn give(
    config: OrderConfig,
    site: &Site,
    report: impl Fn(OrderReport) + Send + 'static,
) -> Result<NodeThread<OrderLink>, ThreadError> {
    let link = OrderLink::new(config, site.clock().now());
    let (tls, options) = (site.tls().clone(), DriverOptions::default());
    let driver = Driver::new(link, site.clock(), tls, Vec::new(), options)?;
    NodeThread::start("coordinator", Box::new(driver), Reporter(report))
}

/// Passes on what an order's link tells.
struct Reporter<R>(R);

impl<R: Fn(OrderReport) + Send> Watch<OrderLink> for Reporter<R> {
    fn look(&mut self, drive: &mut dyn Drive<OrderLink>) -> Option<Instant> {
        iter::from_fn(|| drive.node_mut().poll_event())
            .for_each(|event| (self.0)(OrderReport::Event(event)));
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        (self.0)(OrderReport::Broken(failure.to_string()));
    }
}

/// How long to wait before a relay that is busy is asked for the second time; then twice as long each
/// time. It may only be clearing up after our last round, or be at the end of another team's.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// When an order is given again to a relay that is being measured by others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    /// The target must have accepted by then.
    pub(super) deadline: Instant,
    pause: Duration,
    /// The next attempt, if one is due.
    again_at: Option<Instant>,
}

impl Retries {
    pub(super) const fn until(deadline: Instant) -> Self {
        Self { deadline, pause: BUSY_PAUSE, again_at: None }
    }

    /// Whether there will be another attempt after a failure.
    pub(super) fn handle_failure(&mut self, now: Instant, failure: &OrderFailure) -> bool {
        let is_busy = matches!(failure, OrderFailure::Refused { code: ErrorCode::BUSY, .. });
        let at = now + self.pause;
        if !is_busy || at >= self.deadline {
            return false;
        }
        self.again_at = Some(at);
        self.pause *= 2;
        true
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.again_at
    }

    /// Whether the next attempt is due; says so once.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }
}

/// *r* as orders have it, in thousandths.
pub(super) fn client_share(ratio: f64) -> ClientShare {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
    let permille = (ratio * 1000.0).round() as u16;
    ClientShare::from_permille(permille).unwrap_or(ClientShare::DEFAULT)
}

/// The failure in the coordinator's terms.
pub(super) fn in_coordinators_terms(failure: &OrderFailure) -> Failure {
    let detail = failure.to_string();
    match failure {
        OrderFailure::NoLink { .. }
        | OrderFailure::LinkTimedOut
        | OrderFailure::NotAnswered
        | OrderFailure::Closed { was_accepted: false, .. } => Failure::RelayUnreachable { detail },
        OrderFailure::Closed { was_accepted: true, .. } => Failure::RelayClosed { detail },
        OrderFailure::Refused { code, .. } if ends_an_accepted_one(*code) => {
            Failure::RelayClosed { detail }
        }
        OrderFailure::Refused { code: ErrorCode::BUSY | ErrorCode::QUOTA_EXCEEDED, .. } => {
            Failure::RelayNotNow { detail }
        }
        OrderFailure::Refused { .. } => Failure::ConsentRefused { detail },
        OrderFailure::Violation(_) => Failure::RelayBrokeProtocol { detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> OrderFailure {
        OrderFailure::Refused { code, text: String::new() }
    }

    #[test]
    fn not_now_is_not_the_same_as_no() {
        for code in ErrorCode::ALL {
            let failure = in_coordinators_terms(&refused(*code));
            match code.get() {
                8 | 10 => assert!(matches!(failure, Failure::RelayNotNow { .. }), "{failure}"),
                16..=19 => assert!(matches!(failure, Failure::RelayClosed { .. }), "{failure}"),
                _ => assert!(matches!(failure, Failure::ConsentRefused { .. }), "{failure}"),
            }
        }
    }

    #[test]
    fn a_busy_relay_is_asked_again_a_few_times_and_others_are_not() {
        let mut now = Instant::ORIGIN;
        let mut retries = Retries::until(now + Duration::from_secs(10));
        assert!(!retries.handle_failure(now, &refused(ErrorCode::QUOTA_EXCEEDED)));
        assert!(!retries.handle_failure(now, &OrderFailure::LinkTimedOut));
        assert!(!retries.poll(retries.deadline), "nothing is due");
        let mut attempts = 0;
        while retries.handle_failure(now, &refused(ErrorCode::BUSY)) {
            assert!(!retries.poll(now), "not at once");
            now = retries.poll_timeout().expect("a time");
            assert!(retries.poll(now) && !retries.poll(now), "once");
            attempts += 1;
        }
        assert!(now < retries.deadline);
        assert_eq!(attempts, 4, "after 0.5, 1, 2 and 4 seconds");
    }
}
