//! A client of the network, for tests, benchmarks and simulations: circuits through relays that are
//! given, streams, and figures about both.
//!
//! [`Client`] does on the wire what stock clients do: links without an identity of its own, circuits
//! of any length, streams with SENDMEs that prove what has come. It chooses no relays and has no
//! proxy: the paths and what flows over them are commands. [`Server`] is a destination for its
//! streams. Bytes are [`Pattern`]s, so that both ends check each of them and store none.

mod circuit;
mod event;
mod link;
mod node;
mod packaging;
mod pattern;
mod server;
mod stream;

pub use event::{CircuitNumber, ClientEvent, Figures, Loss, Outcome, StreamNumber};
pub use pattern::{Pattern, Transfer};
pub use server::{Answer, Server};

use crate::cell::msg::{BeginFlags, DestroyReason, EndReason};
use crate::cell::{CircId, Command};
use crate::circuit::{Builder, Handshake, NextHop};
use crate::flow::control::CongestionParams;
use crate::node::{ConnId, Dial, Security};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use circuit::{Circuit, State};
use core::fmt;
use core::net::SocketAddr;
use link::Link;
use rand_core::Rng;
use stream::Stream;

/// The relays of a circuit, and how it begins.
#[derive(Clone, Debug)]
pub struct Path {
    /// First hop first, at least one.
    pub hops: Vec<NextHop>,
    /// Opens the circuit with CREATE_FAST, as clients do to fetch directories; otherwise with CREATE2.
    pub is_fast: bool,
    /// Asks the last hop for congestion control, by ntor of version 3.
    pub has_congestion_control: bool,
    /// Gets a link of its own; otherwise it shares one with other circuits through the same relay.
    pub has_own_link: bool,
}

impl Path {
    /// Through these relays, on a link that is shared, with CREATE2.
    #[must_use]
    pub const fn new(hops: Vec<NextHop>) -> Self {
        Self { hops, is_fast: false, has_congestion_control: false, has_own_link: false }
    }
}

/// Where a stream leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The directory of the last hop.
    Directory,
    /// A host, by name or address, and a port.
    Host(String, u16, BeginFlags),
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        let flags = if address.is_ipv6() { BeginFlags::IPV6_OK } else { BeginFlags::default() };
        Self::Host(address.ip().to_string(), address.port(), flags)
    }
}

/// Events that wait to be asked for, at most; a shell that does not ask misses the oldest.
const EVENTS_MAX: usize = 1 << 16;

/// A client. See the [module](self).
///
/// - *getters*: [`is_built`](Self::is_built), [`open_circuits`](Self::open_circuits),
///   [`open_streams`](Self::open_streams), [`figures`](Self::figures),
///   [`received_bytes`](Self::received_bytes);
/// - *commands*: [`open`](Self::open), [`begin`](Self::begin), [`pause`](Self::pause),
///   [`resume`](Self::resume), [`end`](Self::end), [`destroy`](Self::destroy),
///   [`close_idle`](Self::close_idle), [`close_all`](Self::close_all);
/// - *handle* and *poll*: those of [`Node`](crate::node::Node), and [`poll_event`](Self::poll_event).
pub struct Client<R> {
    rng: R,
    /// Checked against the dates of certificates.
    unix_time_s: u64,
    links: BTreeMap<ConnId, Link>,
    circuits: BTreeMap<CircuitNumber, Circuit>,
    streams: BTreeMap<StreamNumber, Stream>,
    dialled: u32,
    opened: u32,
    begun: u32,
    to_dial: VecDeque<Dial>,
    writable: VecDeque<ConnId>,
    to_close: VecDeque<ConnId>,
    /// When a stream that was asked to be slow may send again.
    room_at: Option<Instant>,
    congestion: Arc<CongestionParams>,
    received_bytes: u64,
    events: VecDeque<ClientEvent>,
}

impl<R: Rng> Client<R> {
    /// A client without circuits. All randomness comes from the generator.
    pub fn new(unix_time_s: u64, rng: R) -> Self {
        Self {
            rng,
            unix_time_s,
            links: BTreeMap::new(),
            circuits: BTreeMap::new(),
            streams: BTreeMap::new(),
            dialled: 0,
            opened: 0,
            begun: 0,
            to_dial: VecDeque::new(),
            writable: VecDeque::new(),
            to_close: VecDeque::new(),
            room_at: None,
            congestion: Arc::new(CongestionParams::default()),
            received_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Whether a circuit stands.
    #[must_use]
    pub fn is_built(&self, circuit: CircuitNumber) -> bool {
        self.circuits.get(&circuit).is_some_and(|it| matches!(it.state, State::Up(_)))
    }

    /// Circuits that stand or are being built.
    #[must_use]
    pub fn open_circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Streams that are not over.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// How far a stream is that is not over.
    #[must_use]
    pub fn figures(&self, stream: StreamNumber) -> Option<&Figures> {
        self.streams.get(&stream).map(Stream::figures)
    }

    /// Bytes that have come on all streams, those that are over included.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Opens a circuit. [`ClientEvent::Built`] or [`ClientEvent::Lost`] will tell.
    ///
    /// A path without hops is lost at once, without a word.
    pub fn open(&mut self, now: Instant, path: &Path) -> CircuitNumber {
        let number = CircuitNumber(self.opened);
        self.opened += 1;
        let Some(first) = path.hops.first() else { return number };
        let shared = self.links.iter().find(|(_, link)| link.serves(first));
        let shared = shared.map(|(conn, _)| *conn).filter(|_| !path.has_own_link);
        let conn = shared.unwrap_or_else(|| self.dial(*first, path.has_own_link));
        let mut handshakes = Vec::new();
        for (place, hop) in path.hops.iter().enumerate() {
            let is_last = place + 1 == path.hops.len();
            let handshake = if place == 0 && path.is_fast {
                let mut x = [0; 20];
                self.rng.fill_bytes(&mut x);
                Handshake::fast(x)
            } else {
                let secret = self.secret();
                let newer = (is_last && path.has_congestion_control)
                    .then(|| Handshake::ntor_v3(hop, secret, true).ok());
                newer.flatten().unwrap_or_else(|| Handshake::ntor(hop, secret))
            };
            handshakes.push((*hop, handshake));
        }
        let (_, opening) = handshakes.remove(0);
        let rest = handshakes;
        let Some(link) = self.links.get_mut(&conn) else { return number };
        let circ_id = link.add_circuit(number);
        let builder = Builder::new(circ_id, opening, rest);
        self.circuits.insert(number, Circuit::new(conn, circ_id, builder));
        if link.is_open() {
            self.with_channel(number, |client, channel| client.create_on(now, channel, number));
        }
        number
    }

    fn secret(&mut self) -> [u8; 32] {
        let mut secret = [0; 32];
        self.rng.fill_bytes(&mut secret);
        secret
    }

    fn dial(&mut self, first: NextHop, is_own: bool) -> ConnId {
        let conn = ConnId(self.dialled);
        self.dialled += 1;
        self.links.insert(conn, Link::new(first, is_own));
        self.to_dial.push_back(Dial { conn, to: first.address, security: Security::Tls });
        conn
    }

    /// Opens a stream on a circuit, once that stands, and does a transfer over it.
    /// [`ClientEvent::Over`] will tell, unless the circuit is lost before.
    ///
    /// A destination that the last hop's exit policy forbids is answered at once: the time is the
    /// circuit's round trip.
    pub fn begin(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        to: Destination,
        transfer: Transfer,
    ) -> StreamNumber {
        let number = StreamNumber(self.begun);
        self.begun += 1;
        if let Some(it) = self.circuits.get_mut(&circuit) {
            self.streams.insert(number, Stream::new(circuit, to, transfer));
            it.waiting.push(number);
            self.begin_waiting(now, circuit);
        }
        number
    }

    /// Reads nothing more of a stream: what still comes is held, and nothing is acknowledged.
    pub fn pause(&mut self, stream: StreamNumber) {
        if let Some(it) = self.streams.get_mut(&stream) {
            it.is_paused = true;
        }
    }

    /// Reads all that is held of a stream, and goes on.
    pub fn resume(&mut self, now: Instant, stream: StreamNumber) {
        let Some(it) = self.streams.get_mut(&stream) else { return };
        it.resume(now);
        self.send_signals(stream);
    }

    /// Ends a stream. There will be no event.
    pub fn end(&mut self, stream: StreamNumber) {
        self.end_with(stream, EndReason::DONE);
    }

    /// Ends a circuit, and all streams on it. There will be no event.
    pub fn destroy(&mut self, circuit: CircuitNumber) {
        let Some(it) = self.forget_circuit(circuit) else { return };
        let reason = [DestroyReason::NONE.get()];
        self.send(it.conn, it.circ_id, Command::DESTROY, &reason);
    }

    /// Closes the links that carry no circuit.
    pub fn close_idle(&mut self) {
        self.to_close
            .extend(self.links.iter().filter_map(|(conn, it)| it.is_idle().then_some(conn)));
    }

    /// Closes all links, without a word about their circuits; there will be no events about them.
    pub fn close_all(&mut self) {
        let circuits: Vec<CircuitNumber> = self.circuits.keys().copied().collect();
        circuits.into_iter().for_each(|circuit| _ = self.forget_circuit(circuit));
        self.close_idle();
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: ClientEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A circuit is gone, and its streams.
    fn lose_circuit(&mut self, circuit: CircuitNumber, cause: Loss) {
        if self.forget_circuit(circuit).is_some() {
            self.tell(ClientEvent::Lost { circuit, cause });
        }
    }

    fn forget_circuit(&mut self, number: CircuitNumber) -> Option<Circuit> {
        let circuit = self.circuits.remove(&number)?;
        if let Some(link) = self.links.get_mut(&circuit.conn) {
            link.circuits.remove(&circuit.circ_id);
        }
        for stream in circuit.streams.values().chain(&circuit.waiting) {
            self.streams.remove(stream);
        }
        Some(circuit)
    }

    /// Queues a cell on a link.
    fn send(&mut self, conn: ConnId, circ_id: CircId, command: Command, body: &[u8]) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if let Some(channel) = link.channel.as_mut().filter(|channel| channel.is_open()) {
            channel.send(circ_id, command, body);
            self.wake(conn);
        }
    }

    /// Queues a link for writing, once.
    fn wake(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&conn)
            && !core::mem::replace(&mut link.is_queued, true)
        {
            self.writable.push_back(conn);
        }
    }
}

impl<R> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (circuits, streams) = (self.circuits.len(), self.streams.len());
        write!(f, "Client({circuits} circuits, {streams} streams)")
    }
}
