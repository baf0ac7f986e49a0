//! The coordinator's own link to a target that takes part.

use crate::local::ends_an_accepted_one;
use crate::thread::{NodeThread, Setup, Stop, ThreadError};
use coordinator::Failure;
use link::{Driver, DriverOptions};
use onion::measure::order::{OrderConfig, OrderEvent, OrderFailure, OrderLink};
use onion::measure::protocol::ClientShare;
use std::iter;

impl Stop for OrderLink {
    fn stop(&mut self) {
        Self::stop(self);
    }
}

/// What comes of an order.
pub(super) enum OrderReport {
    /// The engine's word.
    Event(OrderEvent),
    /// Our thread failed.
    Broken(String),
}

/// The thread of an order's link; dropping it closes the link, and so ends the measurement.
pub(super) struct OrderThread {
    _thread: NodeThread<OrderLink>,
}

impl OrderThread {
    /// Starts a thread that gives the order at once; `report` is called on that thread.
    pub(super) fn spawn(
        config: OrderConfig,
        setup: Setup,
        report: impl Fn(OrderReport) + Clone + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let node = OrderLink::new(config, setup.clock.now());
        let broken = report.clone();
        let watch = move |driver: &mut Driver<OrderLink>| {
            iter::from_fn(|| driver.node_mut().poll_event())
                .for_each(|event| report(OrderReport::Event(event)));
        };
        let broken = move |problem| broken(OrderReport::Broken(problem));
        let setup = Setup { options: DriverOptions::default(), ..setup };
        Ok(Self { _thread: NodeThread::spawn(node, setup, watch, broken)? })
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
        OrderFailure::Refused { .. } => Failure::ConsentRefused { detail },
        OrderFailure::Violation(_) => Failure::RelayBrokeProtocol { detail },
    }
}
