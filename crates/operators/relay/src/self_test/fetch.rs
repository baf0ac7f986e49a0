//! A request to this relay's directory, as clients send it.

use onion::cell_model::Tor;
use onion::client::{Application, Progress};

/// The smallest document that every directory has.
const REQUEST: &[u8] = b"GET /tor/robots.txt HTTP/1.0\r\n\r\n";
/// The beginning of an answer, except for one digit.
const ANSWER: [&[u8]; 2] = [b"HTTP/1.0 200", b"HTTP/1.1 200"];

/// Sends the request, and checks only the first line of the answer.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    answer: Vec<u8>,
}

impl Application<Tor> for Fetch {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < REQUEST.len() as u64
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut [u8]) -> usize {
        let rest = usize::try_from(sent_bytes).ok().and_then(|sent| REQUEST.get(sent..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        len
    }

    fn take(&mut self, _received_bytes: u64, data: &[u8]) -> Progress {
        self.answer.extend_from_slice(data);
        if ANSWER.iter().any(|answer| self.answer.starts_with(answer)) {
            Progress::Complete
        } else if ANSWER.iter().any(|answer| answer.starts_with(&self.answer)) {
            Progress::Open
        } else {
            Progress::Wrong
        }
    }
}
