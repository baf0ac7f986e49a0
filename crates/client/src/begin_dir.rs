//! One question to a directory inside a circuit (BEGIN_DIR, tor-spec §6.2.1), and its answer: what is sent, what is kept of what comes,
//! and the document in it. No circuit, no socket: whoever asks has a [`Core`](onion::client::Core) or a
//! [`Client`](onion::client::Client) for that.

mod http;

use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{Problem, Resource};
use onion::cell_model::Tor;
use onion::client::{Application, Progress};
use std::cell::RefCell;
use std::rc::Rc;

pub use http::HEAD_MAX;

/// Our end of a stream to a directory.
#[derive(Debug)]
pub struct Exchange {
    request: Vec<u8>,
    answer: Answer,
}

/// What the directory has said so far; the stream's end has the same.
#[derive(Clone, Debug)]
pub struct Answer {
    bytes: Rc<RefCell<Vec<u8>>>,
    document_max_bytes: u64,
}

impl Exchange {
    /// Asks for a document of at most so many bytes; `have` are the consensuses that a difference may start from.
    #[must_use]
    pub fn new(
        what: &Resource,
        have: &[ConsensusDigest],
        document_max_bytes: u64,
    ) -> (Self, Answer) {
        let answer = Answer { bytes: Rc::default(), document_max_bytes };
        (Self { request: http::request(what, have), answer: answer.clone() }, answer)
    }
}

impl Answer {
    /// No directory makes us hold more bytes: a document, and the head before it.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        usize::try_from(self.document_max_bytes).unwrap_or(usize::MAX).saturating_add(HEAD_MAX)
    }

    /// Bytes that have come and are kept.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// The document, once the directory has ended the stream in order.
    ///
    /// # Errors
    /// Why there is none: the directory is to blame.
    pub fn document(self) -> Result<Vec<u8>, Problem> {
        http::document(self.bytes.take(), self.document_max_bytes)
    }
}

impl Application<Tor> for Exchange {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < self.request.len() as u64
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut [u8]) -> usize {
        let rest = usize::try_from(sent_bytes).ok().and_then(|sent| self.request.get(sent..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        len
    }

    fn take(&mut self, _received_bytes: u64, data: &[u8]) -> Progress {
        if self.answer.held_bytes() + data.len() > self.answer.max_bytes() {
            return Progress::Wrong;
        }
        self.answer.bytes.borrow_mut().extend_from_slice(data);
        Progress::Open
    }
}
