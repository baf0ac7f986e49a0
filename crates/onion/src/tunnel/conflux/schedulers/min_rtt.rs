use super::{LegScheduler, LegState, least};

/// The leg with the least round trip, and no other: if that is full, the cell waits (proposal 329 §3.1).
///
/// The least latency, hardly anything out of order, and no more throughput than one leg has.
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
