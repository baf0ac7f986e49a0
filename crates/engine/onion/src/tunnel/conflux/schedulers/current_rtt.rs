use super::{LegScheduler, LegState, least};

/// The rule of the paper (Kristel et al., §3): the leg with space whose last measured round-trip time is the
/// shortest.
///
/// The paper measures the time from every 100th cell to its SENDME; with congestion control a SENDME
/// acknowledges 31 cells. It differs from [`LowRtt`](super::LowRtt) in that nothing is averaged.
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
