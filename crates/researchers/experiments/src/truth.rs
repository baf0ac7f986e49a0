//! The simulation compared with real sockets: small Tor networks that run in both from the same description.
//!
//! A function such as [`downloads`] describes a [`Network`], runs it in a [`World`], and returns the observations. [`Simulated`] runs it
//! in virtual time, like `flashflow-lab sim run`. [`RealSockets`] runs relays, a server and clients on separate hosts, with the kernel's
//! TCP, real TLS, and the map's latencies ([`lab::wan`]). `flashflow-lab sim truth` prints the figures of both, and the tests make the
//! same claims about both.
//!
//! [`tornet::truth`] compares TCP alone.

mod client;
mod figures;
mod measuring;
mod real;
mod scenes;
mod simulated;

pub use figures::{Figure, Scene};
pub use measuring::{Measured, Measuring};
pub use real::RealSockets;
pub use scenes::{Downloads, LIMIT, NARROW, Queueing, downloads, measurement, queueing};
pub use simulated::Simulated;

use crate::error::Result;
use onion::Duration;
use std::sync::atomic::AtomicBool;
use tornet::network::Network;

/// An environment that runs networks: virtual time or real sockets.
pub trait World {
    /// The name, in one word.
    fn name(&self) -> &'static str;

    /// Runs a network until its clients have completed all downloads, or the maximum time is over.
    ///
    /// # Errors
    /// If the network cannot run, or a stop was requested.
    fn run(&self, network: &Network, conditions: &RunConditions<'_>) -> Result<Observed>;

    /// Measures a relay by echo with one measurer.
    ///
    /// # Errors
    /// If the measurement cannot run, or a stop was requested. A measurement without an estimate is not an error.
    fn measure(&self, measuring: &Measuring, conditions: &RunConditions<'_>) -> Result<Measured>;
}

/// How to run a network.
#[derive(Clone, Copy, Debug)]
pub struct RunConditions<'a> {
    /// The maximum time in seconds, on the world's clock.
    pub seconds_max: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether to stop.
    pub stop: &'a AtomicBool,
}

/// The observations of a network.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// All finished downloads, those of a client in the order in which they ended.
    pub downloads: Vec<Download>,
    /// The relays, in the network's order.
    pub relays: Vec<RelayStats>,
    /// The maximum delay that the machine added to a packet because it was busy; zero in virtual time.
    pub late: Duration,
    /// Packets lost although the path's loss did not ask for it.
    pub lost_packets: u64,
}

/// A finished download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// The client's place in the network.
    pub client: usize,
    /// When it was requested, since the network began.
    pub begun: Duration,
    /// Received bytes.
    pub bytes: u64,
    /// Time from the request to the first byte.
    pub first_byte: Option<Duration>,
    /// Time from the request to the last byte; `None` if it did not complete in time.
    pub last_byte: Option<Duration>,
}

/// Statistics of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayStats {
    /// Clients' cells sent on links.
    pub cells: u64,
    /// The total time that cells waited in circuit queues.
    pub waited_cell_s: f64,
}

impl RelayStats {
    /// The mean time that a cell waited in circuit queues. `None` if there were no cells.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³ cells")]
    pub fn mean_wait_s(&self) -> Option<f64> {
        (self.cells > 0).then(|| self.waited_cell_s / self.cells as f64)
    }
}
