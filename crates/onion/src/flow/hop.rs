//! Windows between one relay and the next, for transports that are hop by hop.

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

/// Bytes that are held for one way of a circuit, at most: its part in windows, and what is known of the cells under way.
pub(crate) const HOP_BYTES_MAX: usize =
    size_of::<HopAccount>() + size_of::<BackTap>() + flight::TIMES_MAX * size_of::<flight::Sent>();

/// How many cells of a circuit may be under way to the next hop, one way.
///
/// The scheduler asks before it takes a cell. The next hop says by *feedback* that it has passed cells on.
/// When that comes, [`handle_feedback`](Self::handle_feedback) is all that happens, unless the circuit
/// waited for it.
pub trait HopWindow: fmt::Debug + Send {
    /// Cells that may be under way at a time, as it stands.
    fn size_cells(&self) -> u32;

    /// Cells that may be given to the link now.
    fn room_cells(&self, now: Instant) -> u32;

    /// So many cells were given to the link. Relays give no more than there was room for; a client's messages other than data do not wait,
    /// and take room from what comes later.
    fn handle_sent(&mut self, now: Instant, cells: u32);

    /// The next hop has passed so many cells on.
    fn handle_feedback(&mut self, now: Instant, cells: u32);
}

/// A window of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedHopWindow {
    in_flight_cells: u32,
    size_cells: u32,
}

impl FixedHopWindow {
    /// So many cells under way, at most.
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
        // A peer that feeds back more than it got gains nothing.
        self.in_flight_cells = self.in_flight_cells.saturating_sub(cells);
    }
}
