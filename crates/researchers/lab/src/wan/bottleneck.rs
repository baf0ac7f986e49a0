//! The state of a bottleneck, which sends one packet after another.

use super::path::{Bottleneck, Queue};
use onion::{Duration, Instant};

const NANOS_PER_S: u64 = 1_000_000_000;

/// The state of a bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct BottleneckState {
    free_at: Instant,
    /// The rounding remainder, in bytes·10⁻⁹ of the rate per second: carried from packet to packet, so that the
    /// rate is exact in the long run.
    remainder: u64,
}

impl BottleneckState {
    pub(super) const fn new() -> Self {
        Self { free_at: Instant::ORIGIN, remainder: 0 }
    }

    /// Returns when a packet of this length that arrives now has been sent: at once without a bottleneck, never
    /// (`None`) if the queue is full. `now` never decreases.
    pub(super) fn pass(
        &mut self,
        bottleneck: Option<Bottleneck>,
        len: usize,
        now: Instant,
    ) -> Option<Instant> {
        let Some(bottleneck) = bottleneck else { return Some(now) };
        let rate = bottleneck.rate.as_byte_per_s().max(1);
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let backlog = self.free_at.saturating_since(now);
        if backlog.is_zero() {
            self.remainder = 0;
        }
        let scaled = len.saturating_mul(NANOS_PER_S).saturating_add(self.remainder);
        let takes = Duration::from_nanos(scaled / rate);
        let room = match bottleneck.queue {
            Queue::Bytes(bytes) => bottleneck.rate.time_for(bytes),
            Queue::Time(time) => time,
        };
        if !backlog.is_zero() && backlog + takes > room {
            return None;
        }
        self.remainder = scaled % rate;
        self.free_at = now + backlog + takes;
        Some(self.free_at)
    }
}

#[cfg(test)]
mod tests;
