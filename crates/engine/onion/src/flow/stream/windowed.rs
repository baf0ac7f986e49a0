use super::StreamSignal;
use crate::cell::BODY_LEN;
use crate::cell::relay::MAX_DATA_LEN;
use crate::flow::control::FlowError;

/// The stream window of tor-spec §7.4: 500 cells, and one SENDME for each 50.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamWindow {
    /// Cells that this end may package.
    room_cells: u16,
    /// Cells that the peer may still send.
    granted_cells: u16,
    /// Whether the edge keeps up: no SENDME is withheld.
    is_draining: bool,
}

impl StreamWindow {
    /// Cells that may be in flight.
    pub const CELLS: u16 = 500;
    /// The number of cells that one SENDME acknowledges.
    pub const INCREMENT_CELLS: u16 = 50;
    /// If more data is buffered, SENDMEs are withheld, as in tor.
    pub const BUFFERED_BYTES_MAX: usize = 10 * BODY_LEN;

    /// Cells that may be packaged now.
    #[must_use]
    pub const fn room_cells(&self) -> u32 {
        self.room_cells as u32
    }

    /// Bytes that may be packaged now, in full cells.
    #[must_use]
    pub const fn room_bytes(&self) -> u64 {
        self.room_cells as u64 * MAX_DATA_LEN as u64
    }

    /// A DATA cell was packaged.
    pub const fn handle_packaged(&mut self) {
        debug_assert!(self.room_cells > 0, "packaged more than there was room for");
        self.room_cells = self.room_cells.saturating_sub(1);
    }

    /// A SENDME has arrived.
    ///
    /// # Errors
    /// If it acknowledges cells that were not sent.
    pub const fn handle_sendme(&mut self) -> Result<(), FlowError> {
        if self.room_cells > Self::CELLS - Self::INCREMENT_CELLS {
            return Err(FlowError::UnexpectedSendme);
        }
        self.room_cells += Self::INCREMENT_CELLS;
        Ok(())
    }

    /// A DATA cell has arrived; `buffered_bytes` now wait for the edge.
    ///
    /// # Errors
    /// If the window of the peer is exceeded.
    pub const fn handle_delivered(&mut self, buffered_bytes: usize) -> Result<(), FlowError> {
        if self.granted_cells == 0 {
            return Err(FlowError::WindowExceeded);
        }
        self.granted_cells -= 1;
        self.handle_drained(buffered_bytes);
        Ok(())
    }

    /// `buffered_bytes` remain in the buffer.
    pub const fn handle_drained(&mut self, buffered_bytes: usize) {
        self.is_draining = buffered_bytes <= Self::BUFFERED_BYTES_MAX;
    }

    /// SENDMEs to send now. There may be several after the edge was stalled.
    pub fn poll_signal(&mut self) -> Option<StreamSignal> {
        if !self.is_draining || self.granted_cells > Self::CELLS - Self::INCREMENT_CELLS {
            return None;
        }
        self.granted_cells += Self::INCREMENT_CELLS;
        Some(StreamSignal::Sendme)
    }
}

impl Default for StreamWindow {
    fn default() -> Self {
        Self { room_cells: Self::CELLS, granted_cells: Self::CELLS, is_draining: true }
    }
}
