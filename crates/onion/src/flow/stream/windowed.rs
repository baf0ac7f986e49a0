use super::StreamSignal;
use crate::cell::BODY_LEN;
use crate::cell::relay::MAX_DATA_LEN;
use crate::flow::control::FlowError;

/// The window of a stream of tor-spec §7.4: 500 cells, and a SENDME for each 50.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamWindow {
    /// Cells that we may package.
    room_cells: u16,
    /// Cells that the peer may still send.
    granted_cells: u16,
    /// The edge takes what comes: no SENDME is kept back.
    is_draining: bool,
}

impl StreamWindow {
    /// Cells that may be under way.
    pub const CELLS: u16 = 500;
    /// Cells that one SENDME acknowledges.
    pub const INCREMENT_CELLS: u16 = 50;
    /// While more waits for the edge, SENDMEs are kept back, as tor does.
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

    /// A SENDME has come.
    ///
    /// # Errors
    /// Where it acknowledges cells that were not sent.
    pub const fn handle_sendme(&mut self) -> Result<(), FlowError> {
        if self.room_cells > Self::CELLS - Self::INCREMENT_CELLS {
            return Err(FlowError::UnexpectedSendme);
        }
        self.room_cells += Self::INCREMENT_CELLS;
        Ok(())
    }

    /// A DATA cell has come; with it `buffered_bytes` wait for the edge.
    ///
    /// # Errors
    /// Where the peer had no room for it.
    pub const fn handle_delivered(&mut self, buffered_bytes: usize) -> Result<(), FlowError> {
        if self.granted_cells == 0 {
            return Err(FlowError::WindowExceeded);
        }
        self.granted_cells -= 1;
        self.handle_drained(buffered_bytes);
        Ok(())
    }

    /// `buffered_bytes` still wait for the edge.
    pub const fn handle_drained(&mut self, buffered_bytes: usize) {
        self.is_draining = buffered_bytes <= Self::BUFFERED_BYTES_MAX;
    }

    /// SENDMEs that are due. More than one, after the edge had not taken anything for some time.
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
