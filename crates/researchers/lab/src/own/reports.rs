//! A relay's own byte counts while it is measured: ground truth for experiments.

use super::relay::OwnRelay;
use crate::control::BwWatch;
use crate::error::LabError;
use crate::node::Node;
use crate::process::cpu_time;
use link::Clock;
use onion::{Duration, Instant, Rate};

/// Collects a relay's reports of the bytes that it relays in each second.
pub struct RelayReports<'r> {
    source: Source<'r>,
    clock: Clock,
    samples: Vec<Sample>,
}

enum Source<'r> {
    /// The `BW` events of a C tor relay.
    CTor { node: Box<Node>, watch: BwWatch },
    /// The reports of a relay of this project while it is measured, of measurement and client traffic.
    Own(&'r OwnRelay),
}

/// The bytes relayed in about one second: the second before `at`.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    written: Rate,
}

impl<'r> RelayReports<'r> {
    /// For a C tor relay.
    ///
    /// # Errors
    /// [`LabError`] if its control port cannot be used.
    pub fn watch(node: &Node) -> Result<Self, LabError> {
        let source = Source::CTor { node: Box::new(node.clone()), watch: node.watch_bandwidth()? };
        Ok(Self { source, clock: Clock::start(), samples: Vec::new() })
    }

    /// For a relay of this project, whose process was started with this clock.
    #[must_use]
    pub const fn watch_own(relay: &'r OwnRelay, clock: Clock) -> Self {
        Self { source: Source::Own(relay), clock, samples: Vec::new() }
    }

    /// The processor time of its process so far, and the time by [`now`](Self::now).
    #[must_use]
    pub fn cpu(&self) -> Option<CpuReading> {
        let used = match &self.source {
            Source::CTor { node, .. } => node.cpu_time(),
            Source::Own(relay) => cpu_time(relay.process.pid()),
        };
        used.map(|used| CpuReading { at: self.now(), used })
    }

    /// The clock of the samples.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// The time by the samples' clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Collects the reports that arrive until `deadline`, or have arrived if that has passed. A relay that has
    /// ended reports nothing more.
    pub fn gather_until(&mut self, deadline: Instant) {
        match &self.source {
            Source::CTor { watch, .. } => {
                while let Ok(Some(sample)) = watch.recv_timeout(deadline - self.clock.now()) {
                    let age_ns = u64::try_from(sample.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    let now_ns = self.clock.now().as_nanos();
                    let at = Instant::from_nanos(now_ns.saturating_sub(age_ns));
                    // Tor sends one event a second.
                    let written = Rate::from_byte_per_s(sample.event.written_bytes);
                    self.samples.push(Sample { at, written });
                }
            }
            Source::Own(relay) => {
                while let Some((_, value)) = relay.process.next_output(deadline) {
                    let number = |name: &str| value[name].as_u64();
                    if let (Some(ended), Some(measured), Some(clients)) =
                        (number("ended_unix_us"), number("measured_bytes"), number("client_bytes"))
                    {
                        let at = self.clock.at_unix_us(ended);
                        let written = Rate::from_byte_per_s(measured + clients);
                        self.samples.push(Sample { at, written });
                    }
                }
            }
        }
    }

    /// The bytes written in the second that ends nearest to `end`, if it was reported.
    #[must_use]
    pub fn second_ending(&self, end: Instant) -> Option<Rate> {
        let distance = |sample: &&Sample| (sample.at - end).max(end - sample.at);
        let nearest = self.samples.iter().min_by_key(distance)?;
        (distance(&nearest) < Duration::from_millis(700)).then_some(nearest.written)
    }
}

/// Processor time of a process up to an instant.
#[derive(Clone, Copy, Debug)]
pub struct CpuReading {
    /// When it was read.
    pub at: Instant,
    /// What the process has used so far.
    pub used: Duration,
}

impl CpuReading {
    /// Processor time used since `before`, and the elapsed time.
    #[must_use]
    pub fn since(self, before: Self) -> (Duration, Duration) {
        (self.used.saturating_sub(before.used), self.at - before.at)
    }
}
