use super::pattern::Transfer;
use crate::cell_model::{CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, Tor};

/// The application at the client's end of a stream: it produces the data to send and consumes received data.
pub trait Application<S: CellModel> {
    /// The stream is open: CONNECTED has arrived.
    fn handle_connected(&mut self) {}

    /// The answer to a [`Destination::Lookup`](super::Destination::Lookup): the data of its RESOLVED. The
    /// stream is closed.
    fn handle_answer(&mut self, _answer: &[u8]) {}

    /// Whether there is data to send after the first `sent_bytes` bytes. Called when the stream is open and
    /// after each cell; after false, it is not called again before [`send_more`](super::Core::send_more).
    fn has_more(&self, sent_bytes: u64) -> bool;

    /// Writes the data after the first `sent_bytes` bytes into `room`; returns the number of bytes.
    fn fill(&mut self, sent_bytes: u64, room: S::Room<'_>) -> usize;

    /// Consumes data that follows the first `received_bytes` bytes.
    fn take(&mut self, received_bytes: u64, data: S::PayloadSlice<'_>) -> Progress;
}

/// The state of a stream after the last data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It continues.
    Open,
    /// Everything has arrived: the stream is closed.
    Complete,
    /// The data was not as expected: the stream is closed.
    Wrong,
}

impl Transfer {
    const fn progress(&self, received_bytes: u64) -> Progress {
        if received_bytes == self.response_bytes() { Progress::Complete } else { Progress::Open }
    }
}

/// Generates and verifies every byte.
impl Application<Tor> for Transfer {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < self.request_bytes()
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut [u8]) -> usize {
        self.fill_request(sent_bytes, room)
    }

    fn take(&mut self, received_bytes: u64, data: &[u8]) -> Progress {
        if self.matches_response(received_bytes, data) {
            self.progress(received_bytes + data.len() as u64)
        } else {
            Progress::Wrong
        }
    }
}

/// There are no bytes, but missing and duplicate ones are detected. The request is only a length, so the server
/// must know the transfer in another way.
impl Application<HeaderOnly> for Transfer {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < self.request_bytes()
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut RunRoom) -> usize {
        room.put(sent_bytes, self.request_bytes().saturating_sub(sent_bytes))
    }

    fn take(&mut self, received_bytes: u64, data: HeaderOnlyPayload<'_>) -> Progress {
        let HeaderOnlyPayload::Run(Run { at, len }) = data else { return Progress::Wrong };
        let received = received_bytes + u64::from(len);
        if at == Run::place(received_bytes) && received <= self.response_bytes() {
            self.progress(received)
        } else {
            Progress::Wrong
        }
    }
}
