//! The coordinator's own link to a target that takes part.

use crate::local::Site;
use link::{Drive, Driver, DriverOptions, NodeThread, ThreadError, Watch};
use onion::Instant;
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::ClientShare;
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

/// *r* as orders have it, in thousandths.
pub(super) fn client_share(ratio: f64) -> ClientShare {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
    let permille = (ratio * 1000.0).round() as u16;
    ClientShare::from_permille(permille).unwrap_or(ClientShare::DEFAULT)
}
