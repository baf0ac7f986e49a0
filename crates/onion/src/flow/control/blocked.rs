/// Whether a circuit's queue to its link is so long that its streams are not read.
///
/// Tor's rule (parameters `cellq_high` and `cellq_low`): from 256 cells on, until 10 are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedMark {
    is_blocked: bool,
}

impl BlockedMark {
    /// Cells in the queue that block it.
    pub const HIGH_CELLS: u32 = 256;
    /// Cells in the queue that free it again.
    pub const LOW_CELLS: u32 = 10;

    /// Handles a new length of the queue, and tells whether it is blocked now.
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
