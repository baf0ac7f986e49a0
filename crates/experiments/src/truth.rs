//! The simulation compared with real sockets: small Tor networks that both play, by the same description.
//!
//! A body, such as [`downloads`], describes a [`Network`], lets a [`World`] play it, and gives what was seen there. [`Simulated`] plays it in virtual time, as `flashflow-lab sim run`
//! does; [`RealSockets`] on relays, a server and clients, each at a host of its own, with the kernel's TCP, real TLS, and the map's latencies
//! ([`lab::wan`]). `flashflow-lab sim truth` prints the figures of both, and the tests claim of both what has to hold in both.
//!
//! What TCP alone does in both is in [`tornet::truth`].

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

/// Where networks are played.
pub trait World {
    /// In one word.
    fn name(&self) -> &'static str;

    /// Plays a network: until its clients have fetched all that they want, for at most this number of seconds.
    ///
    /// # Errors
    /// Where it cannot be played, or somebody has asked to stop.
    fn play(&self, network: &Network, around: &Around<'_>) -> Result<Played>;

    /// Lets one measurer measure a relay as an echo.
    ///
    /// # Errors
    /// Where it cannot be played, or somebody has asked to stop. That it has come to no estimate is no error.
    fn measure(&self, measuring: &Measuring, around: &Around<'_>) -> Result<Measured>;
}

/// What does not belong to a network.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Seconds that the world passes, at most.
    pub seconds_max: u32,
    /// What chance decides, it decides otherwise with another seed.
    pub seed: u64,
    /// Somebody asks to stop.
    pub stop: &'a AtomicBool,
}

/// What came of a network.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// All downloads that are over, of a client in the order in which they ended.
    pub downloads: Vec<Download>,
    /// In the network's order.
    pub relays: Vec<RelaySeen>,
    /// How far packets were late that the machine had no time for, at worst; zero in virtual time.
    pub late: Duration,
    /// Packets that got lost though nobody had asked for it.
    pub lost_packets: u64,
}

/// A download that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Of which client, by its place in the network.
    pub client: usize,
    /// When it was asked for, since the network began.
    pub begun: Duration,
    /// Bytes that have come.
    pub bytes: u64,
    /// From there to the first byte.
    pub first_byte: Option<Duration>,
    /// And to the last; `None` if not all came in time.
    pub last_byte: Option<Duration>,
}

/// What a relay has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelaySeen {
    /// Cells sent on links, of clients.
    pub cells: u64,
    /// How long they waited in its circuits' queues, all together.
    pub waited_cell_s: f64,
}

impl RelaySeen {
    /// How long a cell waited in its circuits' queues, on average. `None` if there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³ cells")]
    pub fn mean_wait_s(&self) -> Option<f64> {
        (self.cells > 0).then(|| self.waited_cell_s / self.cells as f64)
    }
}
