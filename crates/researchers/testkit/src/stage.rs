//! One relay on cells, and its peers: clients, next hops, destinations, a DNS resolver.
//!
//! The relay is a [`Core`] over any cell model; its peers are simulated. The test makes peers act and time pass.
//! The [`Stage`] records each cell that the relay sends: its link, and its message as the recipient decrypts it.
//! A test can repeat a run with [`Tor`](onion::cell_model::Tor)'s cells and with header-only ones, and compare
//! the records. The fuzz target `seam` uses the same stage.

mod clients;
mod events;
mod hops;
mod links;
mod model;

pub use clients::HandshakeKind;
pub use links::Pace;
pub use model::StageModel;

use links::StageLink;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::{Body, StreamId};
use onion::node::{CloseCause, ConnId, DnsAnswer, LookupId, Security};
use onion::router::{Core, RouterConfig};
use onion::{Duration, Instant};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rand_core::Rng;

/// Limit on the actions that one event may cause.
const POLLS_MAX: u32 = 100_000;

/// A cell that the relay sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentCell {
    /// When the relay sent it.
    pub at: Instant,
    /// The index of the link.
    pub link: usize,
    /// The circuit ID on the link.
    pub circ_id: CircId,
    /// The command.
    pub command: Command,
    /// The message, decrypted by its recipient.
    pub message: Option<DecryptedMessage>,
    /// The reason of a DESTROY.
    pub destroyed: Option<DestroyReason>,
}

/// A relay message as decrypted by its recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecryptedMessage {
    /// The sending hop, counted from the client.
    pub hop: usize,
    /// The command.
    pub command: RelayCommand,
    /// The stream ID.
    pub stream_id: StreamId,
    /// Bytes of stream data.
    pub len: usize,
    /// The content of messages other than DATA and SENDME.
    pub bytes: Vec<u8>,
}

/// A destination, by the relay's connection to it.
#[derive(Clone, Debug)]
struct Destination {
    conn: ConnId,
    is_connected: bool,
    /// Bytes sent.
    sent_bytes: u32,
    /// Bytes received.
    received_bytes: u64,
}

/// A relay and its peers.
#[derive(Debug)]
pub struct Stage<S: StageModel, R> {
    /// The relay.
    pub relay: Core<S, R>,
    /// The time.
    pub now: Instant,
    identity: S::Identity,
    links: Vec<StageLink<S>>,
    destinations: Vec<Destination>,
    lookups: VecDeque<LookupId>,
    sent_cells: Vec<SentCell>,
    /// Cells that peers still have to send, with their links.
    answers: VecDeque<(usize, CircId, Command, Vec<u8>)>,
    secret: u64,
    /// Whether a peer uses hop-by-hop windows, if the relay does: a relay by its number, or a client. Initially
    /// all do.
    pub has_feedback: fn(Option<u8>) -> bool,
}

impl<S: StageModel, R: Rng> Stage<S, R> {
    /// A relay without peers. `configure` may change its configuration.
    pub fn new(rng: R, configure: impl FnOnce(&mut RouterConfig<S::Identity>)) -> Self {
        let identity = S::identity(0);
        let mut config = RouterConfig::new(identity.clone(), 1_600_000_000);
        configure(&mut config);
        Self {
            relay: Core::new(config, onion::router::Honest, rng, Instant::ORIGIN),
            now: Instant::ORIGIN,
            identity,
            links: Vec::new(),
            destinations: Vec::new(),
            lookups: VecDeque::new(),
            sent_cells: Vec::new(),
            answers: VecDeque::new(),
            secret: 0,
            has_feedback: |_| true,
        }
    }

    /// The cells that the relay has sent.
    #[must_use]
    pub fn sent_cells(&self) -> &[SentCell] {
        &self.sent_cells
    }

    /// Clears the record of sent cells.
    pub fn clear_sent_cells(&mut self) {
        self.sent_cells.clear();
    }

    /// The number of destinations.
    #[must_use]
    pub fn destinations(&self) -> usize {
        self.destinations.len()
    }

    /// Advances the clock by `time`, and handles timeouts that fire meanwhile.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let relay = self.relay.poll_timeout();
            let links = self.links.iter().filter_map(StageLink::next_at).min();
            let Some(at) = relay.into_iter().chain(links).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if relay.is_some_and(|at| at <= self.now) {
                self.relay.handle_timeout(self.now);
            }
            let now = self.now;
            self.links.iter_mut().for_each(|link| link.drain(now));
            self.read_on();
            self.settle();
        }
        self.now = end;
    }

    /// Performs all actions of the relay.
    ///
    /// # Panics
    /// If the actions do not end, or name a closed connection.
    pub fn settle(&mut self) {
        for _ in 0..POLLS_MAX {
            if !self.settle_one() {
                return;
            }
        }
        panic!("the relay's actions do not end");
    }

    fn settle_one(&mut self) -> bool {
        if let Some(dial) = self.relay.poll_dial() {
            match dial.security {
                Security::Tls => self.add_next_hop(dial.conn, dial.to),
                Security::Plain => self.destinations.push(Destination {
                    conn: dial.conn,
                    is_connected: false,
                    sent_bytes: 0,
                    received_bytes: 0,
                }),
            }
        } else if let Some(lookup) = self.relay.poll_lookup() {
            self.lookups.push_back(lookup.id);
        } else if let Some(conn) = self.relay.poll_socket_query() {
            let state = self.link_of(conn).map(|link| self.links[link].socket_state());
            self.relay.handle_socket_state(self.now, conn, state.as_ref());
        } else if let Some(conn) = self.relay.poll_writable() {
            self.write(conn);
        } else if let Some(conn) = self.relay.poll_close() {
            self.forget(conn);
        } else if let Some((link, circ_id, command, body)) = self.answers.pop_front() {
            let conn = self.links[link].conn;
            let body = S::Body::from_bytes(&body);
            conn.map(|conn| self.relay.handle_cell(self.now, conn, circ_id, command, &body));
        } else {
            return self.relay.poll_readable().is_some();
        }
        true
    }

    fn write(&mut self, conn: ConnId) {
        if self.relay.is_stream(conn) {
            while self.take(conn, 16_384) > 0 {}
        } else {
            let link = self.link_of(conn).expect("the relay names an open link");
            self.read(link);
        }
    }

    /// A connection is closed.
    fn forget(&mut self, conn: ConnId) {
        self.destinations.retain(|destination| destination.conn != conn);
        if let Some(link) = self.link_of(conn) {
            self.links[link].conn = None;
        }
    }

    fn link_of(&self, conn: ConnId) -> Option<usize> {
        self.links.iter().position(|link| link.conn == Some(conn))
    }

    /// The destination reads some of its queued data.
    fn take(&mut self, conn: ConnId, most: u32) -> usize {
        let (relay, now) = (&mut self.relay, self.now);
        let taken = S::with_room(most, |room| relay.poll_stream_data(now, conn, room));
        if let Some(destination) =
            self.destinations.iter_mut().find(|destination| destination.conn == conn)
        {
            destination.received_bytes += taken as u64;
        }
        taken
    }

    /// Connects the relay to the destination with this index, oldest first.
    pub fn connect(&mut self, number: usize) {
        let Some(destination) = self.destinations.get_mut(number) else { return };
        if !core::mem::replace(&mut destination.is_connected, true) {
            self.relay.handle_plain_connected(self.now, destination.conn);
            self.settle();
        }
    }

    /// The destination sends up to this number of bytes, as the relay accepts them. Returns the number sent.
    pub fn feed(&mut self, number: usize, bytes: u32) -> u32 {
        let mut fed = 0;
        while let Some(destination) =
            self.destinations.get_mut(number).filter(|destination| destination.is_connected)
        {
            let limit = self.relay.receive_limit(destination.conn).min(16_384);
            let len = u32::try_from(limit).unwrap_or(0).min(bytes - fed);
            if len == 0 {
                break;
            }
            let (conn, at) = (destination.conn, destination.sent_bytes);
            destination.sent_bytes = at.wrapping_add(len);
            fed += len;
            let (relay, now) = (&mut self.relay, self.now);
            S::with_data(at, len, |data| relay.handle_stream_data(now, conn, data));
            self.settle();
        }
        fed
    }

    /// The connection to a destination is closed or could not be established.
    pub fn close_destination(&mut self, number: usize, cause: &CloseCause) {
        if number < self.destinations.len() {
            let conn = self.destinations.remove(number).conn;
            self.relay.handle_closed(self.now, conn, cause);
            self.settle();
        }
    }

    /// Answers the oldest DNS query.
    pub fn answer(&mut self, answer: &DnsAnswer) {
        if let Some(id) = self.lookups.pop_front() {
            self.relay.handle_answer(self.now, id, answer);
            self.settle();
        }
    }

    /// Closes all links and destinations.
    pub fn close_all(&mut self) {
        for link in 0..self.links.len() {
            self.close_link(link);
        }
        while !self.destinations.is_empty() {
            self.close_destination(0, &CloseCause::Reset);
        }
        self.settle();
    }

    /// Unique bytes for a handshake: secrecy does not matter here.
    fn next_secret<const N: usize>(&mut self) -> [u8; N] {
        self.secret += 1;
        let mut bytes = [0x5a; N];
        bytes[..8].copy_from_slice(&self.secret.to_be_bytes());
        bytes
    }
}
