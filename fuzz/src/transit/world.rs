//! A measurement and a relay, and their honest behavior.

use crate::input::Input;
use crate::links::Recorded;
use crate::progress::Progress;
use onion::link::TlsSession;
use onion::measure::load::{
    Event, LoadConfig, LoadGenerator, Pace, ReturnPath, ReturnRelay, Target,
};
use onion::measure::protocol::EXPORTER_LABEL;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The limit on bytes in flight on one link in one direction, like a socket's buffer.
const BUFFER_LEN: usize = 100_000;

/// Limit on the actions that one event may cause.
const POLLS_MAX: u32 = 50_000;

/// The recorded TLS session, for all links. It cannot authenticate orders or proofs, which this target does not use.
#[derive(Clone)]
pub(super) struct Tls;

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Recorded::get().own_tls.peer_certificate()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let recorded = &Recorded::get().own_tls;
        if label == EXPORTER_LABEL { None } else { recorded.export_keying_material(label, context) }
    }

    fn peer_address(&self) -> Option<IpAddr> {
        Recorded::get().own_tls.peer_address()
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// A link between the measurement and the relay, or one from a stranger that is not a node.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) ours: Option<ConnId>,
    pub(super) theirs: Option<ConnId>,
    pub(super) is_connected: bool,
    /// Whether the link arrived at one of our landings; else it is one of our sockets to the relay.
    pub(super) is_inbound: bool,
    pub(super) to_us: Vec<u8>,
    pub(super) to_them: Vec<u8>,
    /// Whether we have more to send than the buffer holds.
    pub(super) is_full: bool,
}

/// The measurement, an honest relay, and the links between them, which the fuzzer manipulates.
pub(super) struct World {
    pub(super) transit: LoadGenerator<ChaCha8Rng>,
    pub(super) relay: Router<ChaCha8Rng>,
    pub(super) now: Instant,
    pub(super) target: SocketAddr,
    pub(super) landings: Vec<SocketAddr>,
    pub(super) links: Vec<Link>,
    /// The link of each of our connections.
    pub(super) known: BTreeMap<ConnId, usize>,
    /// Closed connections, which the measurement must not name.
    pub(super) closed: BTreeSet<ConnId>,
    /// Whether to poll for connections to write before connections to close.
    pub(super) writes_first: bool,
    pub(super) fed_bytes: u64,
    pub(super) progress: Progress,
}

impl World {
    pub(super) fn new(input: &mut Input<'_>) -> Self {
        let recorded = Recorded::get();
        let target = SocketAddr::from(([10, 0, 0, 1], 9001));
        let flags = input.u8();
        let landings: Vec<SocketAddr> = (1..=1 + u16::from(flags & 1))
            .map(|port| SocketAddr::from(([10, 0, 0, 2], port)))
            .collect();
        let rng = || ChaCha8Rng::from_seed([flags; 32]);
        let config = config(input, &landings, target);
        let router = RouterConfig::new(Arc::clone(&recorded.own), recorded.now_s);
        Self {
            transit: LoadGenerator::new(config, rng(), Instant::ORIGIN),
            relay: Router::new(router, rng(), Instant::ORIGIN),
            now: Instant::ORIGIN,
            target,
            landings,
            links: Vec::new(),
            known: BTreeMap::new(),
            closed: BTreeSet::new(),
            writes_first: flags & 2 != 0,
            fed_bytes: 0,
            progress: Progress::default(),
        }
    }

    pub(super) fn link(&mut self, index: usize) -> Option<&mut Link> {
        let len = self.links.len().max(1);
        self.links.get_mut(index % len)
    }

    pub(super) fn add(&mut self, link: Link) {
        if let Some(conn) = link.ours {
            assert!(!self.closed.contains(&conn), "{conn:?} is closed");
            assert!(
                self.known.insert(conn, self.links.len()).is_none(),
                "{conn:?} is dialled twice"
            );
        }
        self.links.push(link);
    }

    /// Completes a dialled connection, unless it already is complete.
    pub(super) fn connect(&mut self, index: usize) {
        let accepted = self.relay.handle_accepted(self.now, ListenerId(0), &Tls);
        let Some(link) = self.link(index) else { return };
        let Some(conn) = link.ours.filter(|_| !link.is_connected) else { return };
        link.is_connected = true;
        link.theirs = accepted;
        self.transit.handle_connected(self.now, conn, &Tls);
    }

    /// Delivers bytes to us.
    pub(super) fn feed(&mut self, index: usize, bytes: &[u8]) {
        let Some(link) = self.link(index) else { return };
        let Some(conn) = link.ours.filter(|_| link.is_connected) else { return };
        if link.is_inbound {
            self.fed_bytes += bytes.len() as u64;
        }
        self.transit.handle_bytes(self.now, conn, bytes);
    }

    /// Delivers the bytes in flight on a link, up to `len` bytes in each direction.
    pub(super) fn deliver(&mut self, index: usize, len: usize) {
        let Some(link) = self.link(index) else { return };
        let to_us: Vec<u8> = link.to_us.drain(..len.min(link.to_us.len())).collect();
        let to_them: Vec<u8> = link.to_them.drain(..len.min(link.to_them.len())).collect();
        let theirs = link.theirs;
        if !to_us.is_empty() {
            self.feed(index, &to_us);
            self.settle();
        }
        if let Some(conn) = theirs
            && !to_them.is_empty()
        {
            self.relay.handle_bytes(self.now, conn, &to_them);
        }
        self.settle();
        self.flush(index);
    }

    /// Takes the measurement's output for a link while there is room.
    fn flush(&mut self, index: usize) {
        let now = self.now;
        let Some(index) = index.checked_rem(self.links.len()) else { return };
        let link = &mut self.links[index];
        let Some(conn) = link.ours.filter(|_| link.is_connected) else { return };
        let mut buffer = [0; 16_384];
        while link.to_them.len() < BUFFER_LEN {
            let len = self.transit.poll_transmit(now, conn, &mut buffer);
            link.to_them.extend_from_slice(&buffer[..len]);
            if len == 0 {
                link.is_full = false;
                return;
            }
        }
        link.is_full = true;
    }

    /// One honest step: connects all links, and delivers all bytes.
    pub(super) fn step_honestly(&mut self) {
        for index in 0..self.links.len() {
            self.connect(index);
            self.settle();
            self.deliver(index, BUFFER_LEN);
        }
        self.now += Duration::from_millis(1);
        self.handle_timeout_if_due();
        self.settle();
    }

    /// Closes a link and informs both sides.
    pub(super) fn close(&mut self, index: usize, cause: CloseCause) {
        let Some(link) = self.link(index) else { return };
        let (ours, theirs) = (link.ours.take(), link.theirs.take());
        link.to_us.clear();
        link.to_them.clear();
        if let Some(conn) = ours {
            self.known.remove(&conn);
            self.closed.insert(conn);
            self.transit.handle_closed(self.now, conn, cause.clone());
        }
        if let Some(conn) = theirs {
            self.relay.handle_closed(self.now, conn, cause);
        }
    }

    pub(super) fn handle_timeout_if_due(&mut self) {
        if self.transit.poll_timeout().is_some_and(|at| at <= self.now) {
            self.transit.handle_timeout(self.now);
        }
    }

    pub(super) fn wait_for_timeout(&mut self) {
        if let Some(at) = self.transit.poll_timeout() {
            self.now = self.now.max(at);
            self.transit.handle_timeout(self.now);
        }
    }

    /// Performs every action of both sides until neither has any.
    pub(super) fn settle(&mut self) {
        let mut polls = 0;
        while self.poll_transit() || self.poll_relay() {
            polls += 1;
            assert!(polls < POLLS_MAX, "the actions do not end");
        }
        self.relay.check_accounts();
        while let Some(event) = self.transit.poll_event() {
            if let Event::Lost { circuits, of, .. } = event {
                assert!(circuits >= of / 2, "more than half of the circuits are lost");
            }
            self.progress.take(&event);
        }
        assert_eq!(self.transit.is_over(), self.progress.is_over);
        assert!(self.progress.bytes <= self.fed_bytes, "more bytes counted than received");
        let waits_for_start = self.progress.is_ready && !self.progress.is_started;
        let waits = self.transit.poll_timeout().is_some();
        assert!(self.progress.is_over || waits_for_start || waits, "no timeout is pending");
        assert!(!self.progress.is_over || self.known.is_empty(), "connections are left");
    }

    /// Performs one action of the measurement; false if there is none.
    fn poll_transit(&mut self) -> bool {
        if let Some(Dial { conn, to, .. }) = self.transit.poll_dial(self.now) {
            assert_eq!(to, self.target);
            self.add(Link { ours: Some(conn), ..Link::default() });
            return true;
        }
        if self.writes_first && self.poll_writable() {
            return true;
        }
        if let Some(conn) = self.transit.poll_close() {
            assert!(self.closed.insert(conn), "{conn:?} was closed before");
            if let Some(index) = self.known.remove(&conn) {
                let link = &mut self.links[index];
                link.ours = None;
                if let Some(theirs) = link.theirs.take() {
                    self.relay.handle_closed(self.now, theirs, CloseCause::ByPeer);
                }
            }
            return true;
        }
        self.poll_writable()
    }

    fn poll_writable(&mut self) -> bool {
        let Some(conn) = self.transit.poll_writable() else { return false };
        assert!(!self.closed.contains(&conn), "{conn:?} is closed");
        if let Some(index) = self.known.get(&conn).copied() {
            self.flush(index);
        }
        true
    }

    /// Performs one action of the relay; false if there is none.
    fn poll_relay(&mut self) -> bool {
        if let Some(conn) = self.relay.poll_socket_query() {
            self.relay.handle_socket_state(self.now, conn, None);
            return true;
        }
        if let Some(Dial { conn, to, .. }) = self.relay.poll_dial(self.now) {
            let listener = self.landings.iter().position(|landing| *landing == to);
            let listener = listener.and_then(|index| u32::try_from(index).ok()).map(ListenerId);
            let ours = listener.and_then(|id| self.transit.handle_accepted(self.now, id, &Tls));
            if ours.is_none() {
                self.relay.handle_closed(self.now, conn, CloseCause::Refused);
                return true;
            }
            let (is_connected, is_inbound) = (true, true);
            self.add(Link {
                ours,
                theirs: Some(conn),
                is_connected,
                is_inbound,
                ..Link::default()
            });
            self.relay.handle_connected(self.now, conn, &Tls);
            return true;
        }
        let theirs = |links: &[Link], conn| links.iter().position(|link| link.theirs == Some(conn));
        // The relay's last write may contain the reason.
        if let Some(conn) = self.relay.poll_writable() {
            let mut buffer = [0; 16_384];
            loop {
                let len = self.relay.poll_transmit(self.now, conn, &mut buffer);
                let Some(index) = theirs(&self.links, conn) else { break };
                self.links[index].to_us.extend_from_slice(&buffer[..len]);
                if len == 0 {
                    break;
                }
            }
            return true;
        }
        if let Some(conn) = self.relay.poll_close() {
            if let Some(index) = theirs(&self.links, conn) {
                self.links[index].theirs = None;
                self.close(index, CloseCause::ByPeer);
            }
            return true;
        }
        let is_due = self.relay.poll_timeout().is_some_and(|at| at <= self.now);
        if is_due {
            self.relay.handle_timeout(self.now);
        }
        is_due
    }

    /// Runs without further input: the measurement must end.
    pub(super) fn run_without_input(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.progress.is_over {
                return;
            }
            if self.progress.is_ready && !self.progress.is_started {
                self.transit.start(self.now, self.now);
                self.progress.is_started = true;
            }
            self.wait_for_timeout();
            self.settle();
        }
        panic!("the measurement does not end: {:?}", self.progress);
    }
}

fn config(input: &mut Input<'_>, landings: &[SocketAddr], target: SocketAddr) -> LoadConfig {
    let recorded = Recorded::get();
    let landing = |address: &SocketAddr| {
        let identity = Arc::clone(&recorded.landing);
        ReturnRelay { identity, address: *address }
    };
    let rates = [
        Rate::from_mbit_per_s(50.0),
        Rate::from_mbit_per_s(1.0),
        Rate::from_bit_per_s(9),
        Rate::ZERO,
        Rate::MAX,
    ];
    LoadConfig {
        held_back: None,
        few_circuits: None,
        target: Target { address: target, ids: recorded.own.ids() },
        return_path: ReturnPath::Transit {
            landings: landings.iter().map(landing).collect(),
            authenticate_as: Vec::new(),
        },
        sockets: 1 + u32::from(input.u8() % 3),
        circuits_per_socket: 1 + u32::from(input.u8() % 3),
        pace: Pace { burst: u32::from(input.u8() % 3), per_s: input.choose(&[NonZeroU32::MIN]) },
        second_tries: 2,
        seconds: u32::from(input.u8() % 12),
        rate: input.choose(&rates),
        window_cap_cells: input.choose(&[40, 20, 1, 0]),
        check_one_in: NonZeroU32::new(u32::from(input.u8() % 4)).unwrap_or(NonZeroU32::MIN),
        setup_timeout: Duration::from_millis(u64::from(input.u16())),
        stall_timeout: Duration::from_millis(u64::from(input.u16())),
        unix_time_s: recorded.now_s,
    }
}
