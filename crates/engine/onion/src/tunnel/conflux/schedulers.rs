//! The choice of the leg for the next cell. One file each; a new one is a file and an entry in [`ALL`].

mod blest;
mod current_rtt;
mod cwnd_rtt;
mod low_rtt;
mod min_rtt;

pub use blest::Blest;
pub use current_rtt::CurrentRtt;
pub use cwnd_rtt::CwndRtt;
pub use low_rtt::LowRtt;
pub use min_rtt::MinRtt;

use crate::cell::msg::DesiredUx;
use crate::time::Duration;
use core::fmt;

/// The state of a leg for the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegState {
    /// Its round-trip time: the average of congestion control, before that the handshake's, before that none.
    pub rtt: Option<Duration>,
    /// The last measured round-trip time, from a cell to its SENDME.
    pub last_rtt: Option<Duration>,
    /// The congestion window, in cells.
    pub window_cells: u32,
    /// Cells in flight.
    pub in_flight_cells: u32,
    /// Whether it is in slow start.
    pub is_in_slow_start: bool,
    /// Whether the queue to its link is full.
    pub is_blocked: bool,
}

impl LegState {
    /// Cells that may be sent on it now.
    #[must_use]
    pub const fn room_cells(&self) -> u32 {
        if self.is_blocked { 0 } else { self.window_cells.saturating_sub(self.in_flight_cells) }
    }

    /// Whether a cell may be sent on it.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.room_cells() > 0
    }
}

/// Chooses the leg for the next DATA cell.
pub trait LegScheduler: fmt::Debug + Send + Sync {
    /// Its name, for output and command lines.
    fn name(&self) -> &'static str;

    /// The index of the leg, which has space; `None` if the cell has to wait, even if a leg has space.
    fn choose(&self, legs: &[LegState]) -> Option<usize>;
}

/// All schedulers.
pub const ALL: [&'static dyn LegScheduler; 5] = [&MinRtt, &LowRtt, &CwndRtt, &CurrentRtt, &Blest];

/// The scheduler of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn LegScheduler> {
    ALL.into_iter().find(|scheduler| scheduler.name() == name)
}

/// C tor's choice for a request of the other end (`conflux_choose_algorithm`): a small reordering buffer
/// requires sending on one leg.
#[must_use]
pub fn for_desired_ux(desired: DesiredUx) -> &'static dyn LegScheduler {
    match desired {
        DesiredUx::NoOpinion | DesiredUx::HighThroughput => &LowRtt,
        DesiredUx::MinLatency | DesiredUx::LowMemLatency | DesiredUx::LowMemThroughput => &MinRtt,
    }
}

/// The index of the leg with the shortest round-trip time among those that `may` be used; `None` if no time is
/// known.
fn least(
    legs: &[LegState],
    time: impl Fn(&LegState) -> Option<Duration>,
    may: impl Fn(&LegState) -> bool,
) -> Option<usize> {
    let known = legs.iter().enumerate().filter(|(_, leg)| may(leg));
    let timed = known.filter_map(|(place, leg)| Some((time(leg)?, place)));
    timed.min().map(|(_, place)| place)
}

#[cfg(test)]
mod tests;
