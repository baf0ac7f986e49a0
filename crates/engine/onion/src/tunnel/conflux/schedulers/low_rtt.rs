use super::{LegScheduler, LegState, least};

/// The leg with the shortest round-trip time among those with space (proposal 329 §3.2): the default of C tor's
/// exits.
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
