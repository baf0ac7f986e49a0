//! The coordinator's own link to a participating target.

use crate::local::Site;
use coordinator::OrderTerms;
use link::{Drive, Driver, DriverOptions, NodeThread, Observer, ThreadError, unix_time_s};
use onion::Instant;
use onion::measure::load::Target;
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{CoordinatorKey, Order};
use std::iter;

/// The validity of an order: clocks may differ by minutes.
const ORDER_LIFETIME_S: u64 = 600;

/// An event of an order.
pub enum OrderReport {
    /// The relay's answer or report.
    Event(OrderEvent),
    /// The thread failed.
    Broken(String),
}

/// Sends the order at once, on a thread that calls `report`. Dropping the thread closes the link, and so ends the
/// measurement. `key_seed` is that of the coordinator's key.
///
/// # Errors
/// The operating system cannot create a thread.
pub fn give(
    target: Target,
    terms: &OrderTerms,
    key_seed: [u8; 32],
    random: [u8; 24],
    site: &Site,
    report: impl Fn(OrderReport) + Send + 'static,
) -> Result<NodeThread<OrderLink>, ThreadError> {
    let order = Order {
        coordinator: CoordinatorKey::of_seed(&key_seed),
        target: target.ids,
        measurers: terms.measurers.clone(),
        seconds: terms.seconds,
        client_share: terms.client_share,
        sockets: terms.sockets,
        expires_unix_s: unix_time_s() + ORDER_LIFETIME_S,
        nonce: terms.nonce,
    };
    let accept_timeout = terms.accept_timeout;
    let unix_time_s = unix_time_s();
    let config = OrderConfig { target, order, key_seed, accept_timeout, random, unix_time_s };
    let link = OrderLink::new(config, site.clock().now());
    let (tls, options) = (site.tls().clone(), DriverOptions::default());
    let driver = Driver::new(link, site.clock(), tls, Vec::new(), options)?;
    NodeThread::start("coordinator", Box::new(driver), Reporter(report))
}

/// Forwards the events of an order's link.
struct Reporter<R>(R);

impl<R: Fn(OrderReport) + Send> Observer<OrderLink> for Reporter<R> {
    fn before_turn(&mut self, drive: &mut dyn Drive<OrderLink>) -> Option<Instant> {
        iter::from_fn(|| drive.node_mut().poll_event())
            .for_each(|event| (self.0)(OrderReport::Event(event)));
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        (self.0)(OrderReport::Broken(failure.to_string()));
    }
}
