//! A cooperating relay that may send anything, for `echo` and `order`.

mod link;

use crate::input::Input;
use link::{Link, Tls};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::measure::protocol::{ClientSecond, ErrorCode, Message, Nonce};
use onion::node::{CloseCause, ConnId, Node};
use onion::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// The limit on bytes in flight to the relay on one link, like a socket's buffer.
const BUFFER_LEN: usize = 100_000;

/// The node under test, and its state as the target tracks it.
pub(crate) trait Subject {
    type Node: Node;

    fn node(&mut self) -> &mut Self::Node;
    fn start(&mut self, now: Instant, at: Instant);
    fn stop(&mut self);
    /// Takes and checks its events; it has received at most `fed_cells` relay cells.
    fn settle(&mut self, fed_cells: u64);
    fn is_over(&self) -> bool;
    /// Whether it may wait without a timeout for a command or the relay.
    fn waits_for_others(&self) -> bool;
}

/// The node, the relay's links with it, and the time.
pub(crate) struct Links<S> {
    subject: S,
    now: Instant,
    nonce: Nonce,
    /// Whether the relay answers measurers' proofs.
    proves: bool,
    links: Vec<Link>,
    known: BTreeMap<ConnId, usize>,
    closed: BTreeSet<ConnId>,
    fed_cells: u64,
    /// The next second to be reported.
    second: u16,
}

impl<S: Subject> Links<S> {
    pub(crate) const fn new(subject: S, now: Instant, nonce: Nonce, proves: bool) -> Self {
        Self {
            subject,
            now,
            nonce,
            proves,
            links: Vec::new(),
            known: BTreeMap::new(),
            closed: BTreeSet::new(),
            fed_cells: 0,
            second: 0,
        }
    }

    pub(crate) fn into_subject(self) -> S {
        self.subject
    }

    pub(crate) fn apply(&mut self, input: &mut Input<'_>) {
        let op = input.u8() % 16;
        let index = usize::from(input.u8());
        match op {
            // Several honest steps.
            0..=3 => {
                for _ in 0..=input.u8() % 32 {
                    self.step_honestly();
                }
            }
            4 => self.connect(index),
            5 => {
                let message = self.message(input);
                self.send_cell(index, CircId::LINK, Command::MEASURE, &message);
            }
            6 => {
                let body = input.u8();
                let body = input.take(usize::from(body)).to_vec();
                self.send_cell(index, CircId::LINK, Command::MEASURE, &body);
            }
            // Any cell on any circuit.
            7 => {
                let circ_id = CircId::of_initiator(u32::from(input.u8() % 4));
                let commands = [
                    Command::RELAY,
                    Command::DESTROY,
                    Command::CREATED_FAST,
                    Command::RELAY_EARLY,
                    Command::CREATED2,
                    Command::PADDING,
                ];
                let (command, byte) = (input.choose(&commands), input.u8());
                self.send_cell(index, circ_id, command, &[byte; BODY_LEN]);
            }
            8 => {
                let len = input.u8();
                let bytes = input.take(usize::from(len)).to_vec();
                if let Some(link) = self.link(index) {
                    link.to_us.extend_from_slice(&bytes);
                }
            }
            // Alter, duplicate or drop bytes in flight to the node.
            9 => {
                let (at, mask) = (usize::from(input.u16()), input.u8());
                if let Some(link) = self.link(index)
                    && !link.to_us.is_empty()
                {
                    let at = at % link.to_us.len();
                    link.to_us[at] ^= mask;
                }
            }
            10 => {
                let (cells, is_copy) = (usize::from(input.u8() % 4), input.bool());
                if let Some(link) = self.link(index) {
                    let until = (cells * CELL_LEN).min(link.to_us.len());
                    if is_copy {
                        link.to_us.extend_from_within(..until);
                    } else {
                        link.to_us.drain(..until);
                    }
                }
            }
            11 => self.close(index, CloseCause::Reset),
            12 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.handle_timeout_if_due();
            }
            13 => {
                let at = self.now + Duration::from_millis(u64::from(input.u8()));
                self.subject.start(self.now, at);
            }
            14 => self.deliver(index, usize::from(input.u16())),
            _ => {
                if index == 77 {
                    self.subject.stop();
                } else {
                    self.answer(index, usize::from(input.u8() % 64));
                }
            }
        }
    }

    fn message(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let message = match input.u8() % 8 {
            0 => Message::Proven,
            1 => Message::Accepted { nonce: self.nonce },
            2 => Message::Accepted { nonce: Nonce([input.u8(); 32]) },
            3 | 4 => {
                let second = self.second;
                self.second += 1;
                let (received_bytes, sent_bytes) = (input.u64(), input.u64());
                Message::ClientSecond(
                    ClientSecond { second, received_bytes, sent_bytes },
                    Vec::new(),
                )
            }
            5 => {
                let second = input.u16();
                Message::ClientSecond(
                    ClientSecond { second, received_bytes: 1, sent_bytes: 1 },
                    Vec::new(),
                )
            }
            _ => {
                let code = ErrorCode::new(input.u16());
                let text = input.u8();
                let text = String::from_utf8_lossy(input.take(usize::from(text))).into_owned();
                Message::Error { code, text }
            }
        };
        message.encode()
    }

    fn link(&mut self, index: usize) -> Option<&mut Link> {
        let len = self.links.len().max(1);
        self.links.get_mut(index % len)
    }

    fn connect(&mut self, index: usize) {
        let now = self.now;
        let Some(link) = self.link(index) else { return };
        let Some(conn) = link.ours.filter(|_| !link.is_connected) else { return };
        link.is_connected = true;
        self.subject.node().handle_connected(now, conn, &Tls);
    }

    fn send_cell(&mut self, index: usize, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(link) = self.link(index) {
            link.send_cell(circ_id, command, body);
        }
    }

    fn answer(&mut self, index: usize, cells: usize) {
        if let Some(link) = self.link(index) {
            link.answer(cells);
        }
    }

    /// Delivers the bytes in flight on a link, up to `len` bytes in each direction.
    fn deliver(&mut self, index: usize, len: usize) {
        let (now, nonce, proves) = (self.now, self.nonce, self.proves);
        let Some(link) = self.link(index).filter(|link| link.is_connected) else { return };
        let to_us: Vec<u8> = link.to_us.drain(..len.min(link.to_us.len())).collect();
        let to_them: Vec<u8> = link.to_them.drain(..len.min(link.to_them.len())).collect();
        link.receive(&to_them, nonce, proves);
        let conn = link.ours.filter(|_| !to_us.is_empty());
        if let Some(conn) = conn {
            // Cells may straddle two deliveries: this is the upper limit.
            self.fed_cells += (to_us.len() / CELL_LEN) as u64 + 1;
            self.subject.node().handle_bytes(now, conn, &to_us);
        }
        self.flush(index);
    }

    /// Takes the node's output for a link while there is room.
    fn flush(&mut self, index: usize) {
        let Some(index) = index.checked_rem(self.links.len()) else { return };
        let link = &mut self.links[index];
        let Some(conn) = link.ours.filter(|_| link.is_connected) else { return };
        let mut buffer = [0; 16_384];
        while link.to_them.len() < BUFFER_LEN {
            let len = self.subject.node().poll_transmit(self.now, conn, &mut buffer);
            link.to_them.extend_from_slice(&buffer[..len]);
            if len == 0 {
                return;
            }
        }
    }

    /// One honest step: connects all links, delivers all bytes, and answers.
    fn step_honestly(&mut self) {
        for index in 0..self.links.len() {
            self.connect(index);
            self.settle(1000);
            self.deliver(index, BUFFER_LEN);
            self.settle(1000);
            self.answer(index, usize::MAX);
        }
        self.now += Duration::from_millis(1);
        self.handle_timeout_if_due();
    }

    fn close(&mut self, index: usize, cause: CloseCause) {
        let now = self.now;
        let Some(conn) = self.link(index).and_then(|link| link.ours.take()) else { return };
        self.known.remove(&conn);
        self.closed.insert(conn);
        self.subject.node().handle_closed(now, conn, cause);
    }

    fn handle_timeout_if_due(&mut self) {
        let now = self.now;
        if self.subject.node().poll_timeout().is_some_and(|at| at <= now) {
            self.subject.node().handle_timeout(now);
        }
    }

    /// Performs every action of the node until it has none.
    pub(crate) fn settle(&mut self, polls_max: u32) {
        let mut polls = 0;
        while self.poll() {
            polls += 1;
            assert!(polls < polls_max, "the actions do not end");
        }
        self.subject.settle(self.fed_cells);
        let waits = self.subject.node().poll_timeout().is_some();
        let may_rest = self.subject.is_over() || self.subject.waits_for_others();
        assert!(may_rest || waits, "no timeout is pending");
        assert!(!self.subject.is_over() || self.known.is_empty(), "connections are left");
    }

    /// Performs one action of the node; false if there is none.
    fn poll(&mut self) -> bool {
        let now = self.now;
        if let Some(dial) = self.subject.node().poll_dial(now) {
            assert!(!self.closed.contains(&dial.conn), "{:?} is closed", dial.conn);
            assert!(self.known.insert(dial.conn, self.links.len()).is_none());
            self.links.push(Link::new(dial.conn));
            return true;
        }
        if let Some(conn) = self.subject.node().poll_close() {
            assert!(self.closed.insert(conn), "{conn:?} was closed before");
            if let Some(index) = self.known.remove(&conn) {
                self.links[index].ours = None;
            }
            return true;
        }
        let Some(conn) = self.subject.node().poll_writable() else { return false };
        assert!(!self.closed.contains(&conn), "{conn:?} is closed");
        if let Some(index) = self.known.get(&conn).copied() {
            self.flush(index);
        }
        true
    }

    /// Runs without further input: the node must end, unless it waits for others.
    pub(crate) fn run_without_input(&mut self, polls_max: u32) {
        for _ in 0..polls_max {
            if self.subject.is_over() {
                return;
            }
            self.subject.start(self.now, self.now);
            let Some(at) = self.subject.node().poll_timeout() else {
                assert!(self.subject.waits_for_others(), "no timeout is pending");
                self.subject.stop();
                return self.settle(polls_max);
            };
            self.now = self.now.max(at);
            let now = self.now;
            self.subject.node().handle_timeout(now);
            self.settle(polls_max);
        }
        panic!("the node does not end");
    }
}
