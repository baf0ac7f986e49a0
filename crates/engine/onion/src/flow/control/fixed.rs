use super::{CircuitEnd, CircuitFlow, FlowError, PathState};
use crate::flow::stream::{StreamFlow, StreamWindow};
use crate::time::Instant;

/// The fixed window of tor-spec §7.3: 1,000 cells, and one SENDME for each 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    room_cells: u16,
    /// Cells received since the last SENDME that was sent.
    received_cells: u16,
}

impl FixedWindow {
    /// Cells that may be in flight.
    pub const CELLS: u32 = 1000;
    /// The number of cells that one SENDME acknowledges.
    pub const INCREMENT_CELLS: u32 = 100;

    const CELLS_U16: u16 = 1000;
    const INCREMENT_U16: u16 = 100;
}

impl Default for FixedWindow {
    fn default() -> Self {
        Self { room_cells: Self::CELLS_U16, received_cells: 0 }
    }
}

impl CircuitFlow for FixedWindow {
    fn room_cells(&self) -> u32 {
        u32::from(self.room_cells)
    }

    fn handle_sent(&mut self, _now: Instant) -> bool {
        debug_assert!(self.room_cells > 0, "sent more than there was room for");
        self.room_cells = self.room_cells.saturating_sub(1);
        // SENDMEs add whole increments, so the remainder shows how many cells were sent.
        self.room_cells.is_multiple_of(Self::INCREMENT_U16)
    }

    fn handle_sendme(&mut self, _now: Instant, _path: PathState) -> Result<(), FlowError> {
        if self.room_cells > Self::CELLS_U16 - Self::INCREMENT_U16 {
            return Err(FlowError::UnexpectedSendme);
        }
        self.room_cells += Self::INCREMENT_U16;
        Ok(())
    }

    fn handle_received(&mut self) -> bool {
        self.received_cells += 1;
        let is_due = self.received_cells >= Self::INCREMENT_U16;
        if is_due {
            self.received_cells = 0;
        }
        is_due
    }

    fn sendme_cells(&self) -> u32 {
        Self::INCREMENT_CELLS
    }

    fn stream(&self, _end: CircuitEnd) -> StreamFlow {
        StreamFlow::Windowed(StreamWindow::default())
    }
}
