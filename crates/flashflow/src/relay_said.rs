//! What a relay says of itself while it is measured: the check on ourselves that a private network
//! allows.

use crate::error::Error;
use lab::control::BwWatch;
use link::Clock;
use onion::{Duration, Instant, Rate};

/// Gathers a relay's `BW` events.
pub(crate) struct RelaySaid {
    node: lab::Node,
    watch: BwWatch,
    clock: Clock,
    samples: Vec<Sample>,
}

/// What it relayed in about one second: the second before `at`.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    written: Rate,
}

impl RelaySaid {
    pub(crate) fn watch(node: &lab::Node) -> Result<Self, Error> {
        let watch = node.watch_bandwidth()?;
        Ok(Self { node: node.clone(), watch, clock: Clock::start(), samples: Vec::new() })
    }

    /// What its process has used of the processors so far, and the time by [`now`](Self::now).
    pub(crate) fn cpu(&self) -> Option<CpuReading> {
        self.node.cpu_time().map(|used| CpuReading { at: self.now(), used })
    }

    /// The time by which the samples are dated.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes in what arrives until `deadline`, or what has arrived if that has passed. A relay that is
    /// gone has said all it will.
    pub(crate) fn gather_until(&mut self, deadline: Instant) {
        while let Ok(Some(sample)) = self.watch.recv_timeout(deadline - self.clock.now()) {
            let age_ns = u64::try_from(sample.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let at = Instant::from_nanos(self.clock.now().as_nanos().saturating_sub(age_ns));
            // Tor writes one event a second.
            let written = Rate::from_byte_per_s(sample.event.written_bytes);
            self.samples.push(Sample { at, written });
        }
    }

    /// What it wrote in the second that ends nearest to `end`, if it said so.
    pub(crate) fn second_ending(&self, end: Instant) -> Option<Rate> {
        let distance = |sample: &&Sample| (sample.at - end).max(end - sample.at);
        let nearest = self.samples.iter().min_by_key(distance)?;
        (distance(&nearest) < Duration::from_millis(700)).then_some(nearest.written)
    }
}

/// Processor time of a process up to an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuReading {
    at: Instant,
    used: Duration,
}

impl CpuReading {
    /// Share of one core used since `before`.
    pub(crate) fn share_since(self, before: Self) -> Option<f64> {
        let passed = (self.at - before.at).as_secs_f64();
        (passed > 0.0).then(|| self.used.saturating_sub(before.used).as_secs_f64() / passed)
    }
}

/// The median of rates; the mean of the middle two if their number is even.
pub(crate) fn median(rates: impl IntoIterator<Item = Rate>) -> Option<Rate> {
    let mut bytes: Vec<u64> = rates.into_iter().map(Rate::as_byte_per_s).collect();
    bytes.sort_unstable();
    coordinator::median(&bytes).map(Rate::from_byte_per_s)
}
