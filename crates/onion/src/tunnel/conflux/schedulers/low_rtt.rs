use super::{LegScheduler, LegState, least};

/// The leg with the least round trip among those that have room (proposal 329 §3.2): what C tor's exits do by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowRtt;

impl LegScheduler for LowRtt {
    fn name(&self) -> &'static str {
        "low-rtt"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        least(legs, |leg| leg.rtt, LegState::has_room)
    }
}
