use onion::Rate;
use onion::{Duration, Instant};

/// What lies between two nodes, one way. Connections over it are made with a TCP of their own, see
/// the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathModel {
    /// Time from one node to the other.
    pub latency: Duration,
    /// What the narrowest place lets pass; all that comes if `None`.
    pub rate: Option<Rate>,
    /// How long bytes wait there at most. Those that would wait longer are dropped.
    pub queue: Duration,
    /// Segments that get lost without any reason, of a million.
    pub loss_per_million: u32,
}

impl Default for PathModel {
    /// Ten milliseconds one way, nothing narrow, nothing lost.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(10),
            rate: None,
            queue: Duration::from_millis(100),
            loss_per_million: 0,
        }
    }
}

/// A place that lets bytes pass at a rate, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    rate: Rate,
    /// How long bytes that can be lost wait at most.
    longest: Duration,
    /// When all that has come so far is through.
    free_at: Instant,
}

impl Narrow {
    pub(super) const fn new(rate: Rate, longest: Duration, now: Instant) -> Self {
        Self { rate, longest, free_at: now }
    }

    /// When `bytes` that come at `at` are through.
    pub(super) fn pass(&mut self, at: Instant, bytes: usize) -> Instant {
        self.free_at = self.free_at.max(at) + self.rate.time_for(bytes as u64);
        self.free_at
    }

    /// The same of bytes that are dropped if they would have to wait too long.
    pub(super) fn pass_or_drop(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        (self.free_at - at <= self.longest).then(|| self.pass(at, bytes))
    }
}

/// The way from one node to another.
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

    /// When bytes that set out at `at` are through the narrowest place; `None` if it drops them.
    pub(super) fn pass(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        match &mut self.narrow {
            Some(narrow) => narrow.pass_or_drop(at, bytes),
            None => Some(at),
        }
    }
}
