//! A directory request inside a circuit (BEGIN_DIR, tor-spec §6.2.1): the request, the received
//! answer, and the document in it. It knows no circuits and no sockets; a
//! [`Core`](onion::client::Core) or a [`Client`](onion::client::Client) carries it.

mod http;

use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{Problem, Resource};
use onion::cell_model::Tor;
use onion::client::{Application, Progress};
use std::cell::RefCell;
use std::rc::Rc;

pub use http::HEAD_MAX;

/// The client's end of a directory stream.
#[derive(Debug)]
pub struct Exchange {
    request: Vec<u8>,
    answer: Answer,
}

/// The answer so far, shared with the stream.
#[derive(Clone, Debug)]
pub struct Answer {
    bytes: Rc<RefCell<Vec<u8>>>,
    document_max_bytes: u64,
}

impl Exchange {
    /// Requests a document of at most `max_bytes` bytes. Diffs from the consensuses `have` are
    /// accepted.
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
    /// Limit on stored bytes: a document and its header.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        usize::try_from(self.document_max_bytes).unwrap_or(usize::MAX).saturating_add(HEAD_MAX)
    }

    /// The number of stored bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// The document, once the directory has ended the stream.
    ///
    /// # Errors
    /// [`Problem`] if there is none. The directory is to blame.
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
