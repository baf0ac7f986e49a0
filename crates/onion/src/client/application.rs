use super::pattern::Transfer;
use crate::cell_model::{CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, Tor};

/// What stands at our end of a stream: it makes what is sent, and takes what comes.
pub trait Application<S: CellModel> {
    /// The stream leads to its destination: the relay has said CONNECTED.
    fn handle_connected(&mut self) {}

    /// The relay has answered a [`Destination::Lookup`](super::Destination::Lookup): the data of its RESOLVED. The stream is over.
    fn handle_answer(&mut self, _answer: &[u8]) {}

    /// Whether there is something to send behind so many bytes. Asked when the stream is connected and
    /// after each cell; who has nothing more is not asked again before [`send_more`](super::Core::send_more).
    fn has_more(&self, sent_bytes: u64) -> bool;

    /// Puts what is to be sent behind so many bytes into `room`; returns how many bytes.
    fn fill(&mut self, sent_bytes: u64, room: S::Room<'_>) -> usize;

    /// Takes what has come behind so many bytes.
    fn take(&mut self, received_bytes: u64, data: S::PayloadSlice<'_>) -> Progress;
}

/// What has become of a stream with what came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    Open,
    /// All has come: the stream ends.
    Complete,
    /// What came is not what was expected: the stream ends.
    Wrong,
}

impl Transfer {
    const fn progress(&self, received_bytes: u64) -> Progress {
        if received_bytes == self.response_bytes() { Progress::Complete } else { Progress::Open }
    }
}

/// Each byte is made, and checked.
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

/// There are no bytes, but none is missing and none comes twice. The server must know of the transfer in
/// another way than by the request, which is a length, too.
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
