use super::{LegScheduler, LegState, least};
use crate::time::Duration;

/// The leg with the shortest round-trip time. If that is full, another one, as far as its cells arrive no later
/// than if they had waited. C tor has it (`CONFLUX_ALG_CWNDRTT`), but no request selects it.
///
/// While the first leg's acknowledgements are in flight, another leg carries `window × shortest round-trip time
/// / its own`. A leg in slow start may be filled, to find its window. Of several the last is taken, as in C
/// tor.
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
        let min_rtt = legs[first].rtt?;
        let sends = |leg: &LegState| leg.rtt.is_some_and(|rtt| sendable(leg, rtt, min_rtt) > 0);
        legs.iter().rposition(|leg| leg.has_room() && sends(leg))
    }
}

/// Cells that a leg carries in the shortest round-trip time.
fn sendable(leg: &LegState, rtt: Duration, min_rtt: Duration) -> u128 {
    let room = u128::from(leg.room_cells());
    if leg.is_in_slow_start || rtt.is_zero() || min_rtt.is_zero() {
        return room;
    }
    (room * min_rtt.as_micros() / rtt.as_micros().max(1)).min(leg.window_cells.into())
}
