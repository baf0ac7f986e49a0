//! Hop-by-hop windows: limits on the cells of a circuit in flight between one relay and the next.

mod account;
mod backtap;
mod flight;
mod pace;
mod reramp;
mod train;
mod windows;

pub(crate) use account::{Excess, HopAccount};
pub use backtap::BackTap;
pub use windows::{HopFlows, HopWindows};

use crate::time::Instant;
use core::fmt;

/// Maximum memory for one direction of a circuit, in bytes: its account, and the send times of cells in flight.
pub(crate) const HOP_BYTES_MAX: usize =
    size_of::<HopAccount>() + size_of::<BackTap>() + flight::TIMES_MAX * size_of::<flight::Sent>();

/// A window for the cells of a circuit in flight to the next hop, in one direction.
///
/// The scheduler asks before it takes a cell. The next hop reports forwarded cells by *feedback*, and then only
/// [`handle_feedback`](Self::handle_feedback) is called, unless the circuit was blocked.
pub trait HopWindow: fmt::Debug + Send {
    /// The current window, in cells.
    fn size_cells(&self) -> u32;

    /// Cells that may be given to the link now.
    fn room_cells(&self, now: Instant) -> u32;

    /// Cells were given to the link. Relays never exceed the space; a client's messages other than data do not
    /// wait, and reduce the space for later cells.
    fn handle_sent(&mut self, now: Instant, cells: u32);

    /// The next hop reports this number of forwarded cells.
    fn handle_feedback(&mut self, now: Instant, cells: u32);
}

/// A window of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedHopWindow {
    in_flight_cells: u32,
    size_cells: u32,
}

impl FixedHopWindow {
    /// A window of `size_cells`.
    #[must_use]
    pub const fn new(size_cells: u32) -> Self {
        Self { in_flight_cells: 0, size_cells }
    }
}

impl HopWindow for FixedHopWindow {
    fn size_cells(&self) -> u32 {
        self.size_cells
    }

    fn room_cells(&self, _now: Instant) -> u32 {
        self.size_cells.saturating_sub(self.in_flight_cells)
    }

    fn handle_sent(&mut self, _now: Instant, cells: u32) {
        self.in_flight_cells = self.in_flight_cells.saturating_add(cells);
    }

    fn handle_feedback(&mut self, _now: Instant, cells: u32) {
        // A peer that reports more cells than it received gains nothing.
        self.in_flight_cells = self.in_flight_cells.saturating_sub(cells);
    }
}
