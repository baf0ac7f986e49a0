//! Paths between nodes: latency, bottleneck, loss.

use onion::Rate;
use onion::{Duration, Instant};

/// The path from one node to another. Connections over it have their own TCP, see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathModel {
    /// The one-way latency.
    pub latency: Duration,
    /// The rate of the bottleneck; `None` for unlimited.
    pub rate: Option<Rate>,
    /// The maximum queueing time at the bottleneck. Bytes that would wait longer are dropped.
    pub queue: Duration,
    /// Segments lost at random, per million.
    pub loss_per_million: u32,
}

impl Default for PathModel {
    /// Ten milliseconds one way, no bottleneck, no loss.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(10),
            rate: None,
            queue: Duration::from_millis(100),
            loss_per_million: 0,
        }
    }
}

/// A rate limiter with a FIFO queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    rate: Rate,
    /// The maximum queueing time of bytes that may be dropped.
    longest: Duration,
    /// When everything that has arrived so far has passed.
    free_at: Instant,
}

impl Narrow {
    pub(super) const fn new(rate: Rate, longest: Duration, now: Instant) -> Self {
        Self { rate, longest, free_at: now }
    }

    /// When `bytes` that arrive at `at` have passed.
    pub(super) fn pass(&mut self, at: Instant, bytes: usize) -> Instant {
        self.free_at = self.free_at.max(at) + self.rate.time_for(bytes as u64);
        self.free_at
    }

    /// When they have passed, or `None` if they would have to wait too long and are dropped.
    pub(super) fn pass_or_drop(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        (self.free_at - at <= self.longest).then(|| self.pass(at, bytes))
    }
}

/// The path from one node to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) model: PathModel,
    narrow: Option<Narrow>,
}

impl Path {
    pub(super) fn new(model: PathModel, now: Instant) -> Self {
        let narrow = model.rate.map(|rate| Narrow::new(rate, model.queue, now));
        Self { model, narrow }
    }

    /// When bytes sent at `at` have passed the bottleneck; `None` if it drops them.
    pub(super) fn pass(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        match &mut self.narrow {
            Some(narrow) => narrow.pass_or_drop(at, bytes),
            None => Some(at),
        }
    }
}
