//! Which leg the next cell goes on. One file each; a new one is a file and a line in [`ALL`].

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

/// What is known of a leg when it is chosen for the next cell of data, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegState {
    /// Its round trip as congestion control has it, an average; by the handshake before there is one; none before that.
    pub rtt: Option<Duration>,
    /// The last round trip that was measured: from a cell to its SENDME.
    pub last_rtt: Option<Duration>,
    /// Cells that may be under way.
    pub window_cells: u32,
    /// Cells under way.
    pub in_flight_cells: u32,
    /// Its window still grows by each SENDME.
    pub is_in_slow_start: bool,
    /// Our own link takes no more of its cells.
    pub is_blocked: bool,
}

impl LegState {
    /// Cells that may be sent on it now.
    #[must_use]
    pub const fn room_cells(&self) -> u32 {
        if self.is_blocked { 0 } else { self.window_cells.saturating_sub(self.in_flight_cells) }
    }

    /// Whether one may.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.room_cells() > 0
    }
}

/// Chooses the leg for the next cell of data.
pub trait LegScheduler: fmt::Debug + Send + Sync {
    /// Its name, for people and on command lines.
    fn name(&self) -> &'static str;

    /// The place of the leg; none if the cell is to wait, though there may be a leg with room. It has room.
    fn choose(&self, legs: &[LegState]) -> Option<usize>;
}

/// All there are.
pub const ALL: [&'static dyn LegScheduler; 5] = [&MinRtt, &LowRtt, &CwndRtt, &CurrentRtt, &Blest];

/// The scheduler of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn LegScheduler> {
    ALL.into_iter().find(|it| it.name() == name)
}

/// What C tor takes for a wish of the other end (`conflux_choose_algorithm`): low memory is had by sending on one leg.
#[must_use]
pub fn for_wish(desired: DesiredUx) -> &'static dyn LegScheduler {
    match desired {
        DesiredUx::NoOpinion | DesiredUx::HighThroughput => &LowRtt,
        DesiredUx::MinLatency | DesiredUx::LowMemLatency | DesiredUx::LowMemThroughput => &MinRtt,
    }
}

/// The place of the leg with the least time among those that `may` be; none if no time is known.
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
