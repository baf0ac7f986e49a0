use super::{LegScheduler, LegState, least};

/// The rule of the paper (Kristel et al., §3): the leg whose last measured round trip is the least, among those with room.
///
/// The paper takes the time from every 100th cell to its SENDME; with congestion control SENDMEs are for 31 cells. It
/// differs from [`LowRtt`](super::LowRtt) in that nothing is averaged: what a leg was like a moment ago counts alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentRtt;

impl LegScheduler for CurrentRtt {
    fn name(&self) -> &'static str {
        "current-rtt"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        least(legs, |leg| leg.last_rtt, LegState::has_room)
    }
}
