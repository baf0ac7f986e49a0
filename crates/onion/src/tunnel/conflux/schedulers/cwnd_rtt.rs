use super::{LegScheduler, LegState, least};
use crate::time::Duration;

/// The leg with the least round trip; when that is full, another, as far as what it carries arrives no later than if one
/// had waited. C tor has it (`CONFLUX_ALG_CWNDRTT`), and no wish that asks for it.
///
/// While the first leg's acknowledgements are under way, another leg carries `window × least round trip / its own`. A leg
/// in slow start may be filled, to find its window. Of several the last is taken, as in C tor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CwndRtt;

impl LegScheduler for CwndRtt {
    fn name(&self) -> &'static str {
        "cwnd-rtt"
    }

    fn choose(&self, legs: &[LegState]) -> Option<usize> {
        let first = least(legs, |leg| leg.rtt, |_| true)?;
        if legs[first].has_room() {
            return Some(first);
        }
        let least_rtt = legs[first].rtt?;
        let sends = |leg: &LegState| leg.rtt.is_some_and(|rtt| sendable(leg, rtt, least_rtt) > 0);
        legs.iter().rposition(|leg| leg.has_room() && sends(leg))
    }
}

/// Cells that a leg carries in the time of the least round trip.
fn sendable(leg: &LegState, rtt: Duration, least_rtt: Duration) -> u128 {
    let room = u128::from(leg.room_cells());
    if leg.is_in_slow_start || rtt.is_zero() || least_rtt.is_zero() {
        return room;
    }
    (room * least_rtt.as_micros() / rtt.as_micros().max(1)).min(leg.window_cells.into())
}
