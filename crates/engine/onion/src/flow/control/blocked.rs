/// Whether a circuit's queue to its link is too long for its streams to be read.
///
/// Tor's rule (parameters `cellq_high` and `cellq_low`): blocked from 256 cells on, until 10 are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedMark {
    is_blocked: bool,
}

impl BlockedMark {
    /// The queue length that blocks, in cells.
    pub const HIGH_CELLS: u32 = 256;
    /// The queue length that unblocks, in cells.
    pub const LOW_CELLS: u32 = 10;

    /// Handles a new queue length; returns whether the streams are blocked now.
    pub const fn handle_queue(&mut self, queued_cells: u32) -> bool {
        if queued_cells >= Self::HIGH_CELLS {
            self.is_blocked = true;
        } else if queued_cells <= Self::LOW_CELLS {
            self.is_blocked = false;
        }
        self.is_blocked
    }

    /// Whether it is blocked.
    #[must_use]
    pub const fn is_blocked(self) -> bool {
        self.is_blocked
    }
}
