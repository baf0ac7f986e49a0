use super::EVENTS_MAX;
use super::pattern::{Pattern, Transfer};
use crate::link::TlsSession;
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};

/// A destination for streams: performs the [`Transfer`] requested on each connection and closes it. Wrong bytes
/// of an upload close it immediately.
///
/// - *getters*: [`open_conns`](Self::open_conns), [`received_bytes`](Self::received_bytes);
/// - *commands*: [`pause`](Self::pause), [`resume`](Self::resume);
/// - *handle* and *poll*: those of [`Node`], and [`poll_answer`](Self::poll_answer).
///
/// Its memory does not depend on the length of transfers: it generates and verifies bytes without storing them.
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

/// The beginning of a [`Server`]'s answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub transfer: Transfer,
    /// When its first bytes were sent.
    pub began_at: Instant,
}

#[derive(Debug)]
struct Conn {
    request: [u8; Transfer::REQUEST_LEN],
    /// `None` until the request is complete.
    transfer: Option<Transfer>,
    received_bytes: u64,
    sent_bytes: u64,
    is_closing: bool,
}

impl Conn {
    const fn has_upload(&self, transfer: &Transfer) -> bool {
        self.received_bytes >= transfer.request_bytes()
    }

    /// Handles received bytes; returns false if they are wrong.
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
    /// A server that reads everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of open connections.
    #[must_use]
    pub fn open_conns(&self) -> usize {
        self.conns.len()
    }

    /// Bytes received on all connections, including requests.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Stops reading from all connections until [`resume`](Self::resume).
    pub const fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Resumes reading.
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.readable.extend(self.conns.keys().copied());
    }

    /// The next answer that has begun. If the caller does not poll, the oldest are lost.
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
        let Some(client) = self.conns.get_mut(&conn).filter(|conn| !conn.is_closing) else {
            return;
        };
        self.received_bytes += plaintext.len() as u64;
        if client.receive(plaintext) {
            self.writable.push_back(conn);
        } else {
            client.is_closing = true;
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
        let Some(client) = self.conns.get_mut(&conn).filter(|conn| !conn.is_closing) else {
            return 0;
        };
        let Some(transfer) = client.transfer else { return 0 };
        let len = transfer.fill_response(client.sent_bytes, client.has_upload(&transfer), out);
        if client.sent_bytes == 0 && len > 0 {
            if self.answers.len() == EVENTS_MAX {
                self.answers.pop_front();
            }
            self.answers.push_back(Answer { transfer, began_at: now });
        }
        client.sent_bytes += len as u64;
        if client.sent_bytes == transfer.response_bytes() {
            client.is_closing = true;
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
