use super::EVENTS_MAX;
use super::pattern::{Pattern, Transfer};
use crate::link::TlsSession;
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};

/// A destination of streams: does the [`Transfer`] that is asked for on each connection, and closes
/// it then. Wrong bytes of an upload are answered by closing at once.
///
/// - *getters*: [`open_conns`](Self::open_conns), [`received_bytes`](Self::received_bytes);
/// - *commands*: [`pause`](Self::pause), [`resume`](Self::resume);
/// - *handle* and *poll*: those of [`Node`], and [`poll_answer`](Self::poll_answer).
///
/// Its memory is the same for any length: what it sends and checks is made anew.
#[derive(Debug, Default)]
pub struct Server {
    conns: BTreeMap<ConnId, Conn>,
    accepted: u32,
    writable: VecDeque<ConnId>,
    readable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    received_bytes: u64,
    is_paused: bool,
    answers: VecDeque<Answer>,
}

/// A [`Server`]'s answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was asked for.
    pub transfer: Transfer,
    /// When its first bytes were sent.
    pub began_at: Instant,
}

#[derive(Debug)]
struct Conn {
    request: [u8; Transfer::REQUEST_LEN],
    /// Once the request is whole.
    transfer: Option<Transfer>,
    received_bytes: u64,
    sent_bytes: u64,
    is_closing: bool,
}

impl Conn {
    const fn has_upload(&self, transfer: &Transfer) -> bool {
        self.received_bytes >= transfer.request_bytes()
    }

    /// Takes what has come; false if it is wrong.
    fn receive(&mut self, mut bytes: &[u8]) -> bool {
        if self.transfer.is_none() {
            let from = usize::try_from(self.received_bytes).unwrap_or(0);
            let len = bytes.len().min(Transfer::REQUEST_LEN - from);
            self.request[from..from + len].copy_from_slice(&bytes[..len]);
            self.received_bytes += len as u64;
            bytes = &bytes[len..];
            if from + len < Transfer::REQUEST_LEN {
                return true;
            }
        }
        let transfer = *self.transfer.get_or_insert(Transfer::parse(&self.request));
        let offset = self.received_bytes - Transfer::REQUEST_LEN as u64;
        self.received_bytes += bytes.len() as u64;
        self.received_bytes <= transfer.request_bytes()
            && Pattern { seed: transfer.seed }.matches(offset, bytes)
    }
}

impl Server {
    /// One that reads all that comes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open_conns(&self) -> usize {
        self.conns.len()
    }

    /// Bytes that have come on all connections, requests included.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Reads nothing more until it is told to.
    pub const fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Reads again.
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.readable.extend(self.conns.keys().copied());
    }

    /// The next answer that has begun; who does not ask misses the oldest.
    #[must_use]
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }
}

impl Node for Server {
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId, _tls: &dyn TlsSession) {}

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        let conn = ConnId(self.accepted);
        self.accepted = self.accepted.wrapping_add(1);
        let request = [0; Transfer::REQUEST_LEN];
        let new =
            Conn { request, transfer: None, received_bytes: 0, sent_bytes: 0, is_closing: false };
        self.conns.insert(conn, new);
        Some(conn)
    }

    fn handle_bytes(&mut self, _now: Instant, conn: ConnId, plaintext: &[u8]) {
        let Some(it) = self.conns.get_mut(&conn).filter(|it| !it.is_closing) else { return };
        self.received_bytes += plaintext.len() as u64;
        if it.receive(plaintext) {
            self.writable.push_back(conn);
        } else {
            it.is_closing = true;
            self.to_close.push_back(conn);
        }
    }

    fn handle_closed(&mut self, _now: Instant, conn: ConnId, _cause: CloseCause) {
        self.conns.remove(&conn);
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        None
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.writable.pop_front()?;
            if self.conns.contains_key(&conn) {
                return Some(conn);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(it) = self.conns.get_mut(&conn).filter(|it| !it.is_closing) else { return 0 };
        let Some(transfer) = it.transfer else { return 0 };
        let len = transfer.fill_response(it.sent_bytes, it.has_upload(&transfer), out);
        if it.sent_bytes == 0 && len > 0 {
            if self.answers.len() == EVENTS_MAX {
                self.answers.pop_front();
            }
            self.answers.push_back(Answer { transfer, began_at: now });
        }
        it.sent_bytes += len as u64;
        if it.sent_bytes == transfer.response_bytes() {
            it.is_closing = true;
            self.to_close.push_back(conn);
        }
        len
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.to_close.pop_front()?;
            if self.conns.remove(&conn).is_some() {
                return Some(conn);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn receive_limit(&self, _conn: ConnId) -> usize {
        if self.is_paused { 0 } else { usize::MAX }
    }

    fn poll_readable(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.readable.pop_front()?;
            if self.conns.contains_key(&conn) {
                return Some(conn);
            }
        }
    }
}
