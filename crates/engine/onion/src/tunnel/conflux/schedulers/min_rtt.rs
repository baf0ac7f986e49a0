use super::{LegScheduler, LegState, least};

/// The leg with the shortest round-trip time, and no other: if it is full, the cell waits (proposal 329 §3.1).
///
/// Minimal latency and reordering, and the throughput of one leg.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinRtt;

impl LegScheduler for MinRtt {
    fn name(&self) -> &'static str {
        "min-rtt"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        least(legs, |leg| leg.rtt, |_| true).filter(|place| legs[*place].has_room())
    }
}
