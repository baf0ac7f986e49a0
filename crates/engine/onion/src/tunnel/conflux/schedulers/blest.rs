use super::{LegScheduler, LegState, least};

/// Blocking estimation (proposal 329 §3.4, after Ferlin et al., Networking 2016): the leg with the shortest
/// round-trip time. If that is full, the next one, unless the first would carry more in the next one's
/// round-trip time than the next one has space for.
///
/// As in the proposal, without the factor that adapts to blocking, which the receiver would have to report. C
/// tor does not have it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blest;

impl LegScheduler for Blest {
    fn name(&self) -> &'static str {
        "blest"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        let first = least(legs, |leg| leg.rtt, |_| true)?;
        if legs[first].has_room() {
            return Some(first);
        }
        let next = least(legs, |leg| leg.rtt, LegState::has_room)?;
        let (fast, slow) = (&legs[first], &legs[next]);
        let ratio = slow.rtt?.as_secs_f64() / fast.rtt?.as_secs_f64().max(1e-6);
        let first_carries = (f64::from(fast.window_cells) + (ratio - 1.0) / 2.0) * ratio;
        let room = f64::from(slow.window_cells) - f64::from(slow.in_flight_cells) - 1.0;
        (first_carries < room).then_some(next)
    }
}
