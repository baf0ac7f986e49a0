//! One router on bytes and the peers of its connections: for tests of the engine and for fuzzing.
//!
//! In contrast to [`stage`](crate::stage), there are link handshakes, framing and tor's cryptography. The router
//! uses the default scheduler, so cells may wait for its next run: [`advance`](Fixture::advance) by a [`RUN`].
//!
//! The fixture moves bytes. The test reads cells from [`Peer::received`] and answers them.

mod actions;
mod peers;
mod session;
mod streams;

pub use peers::{Destination, FAST_SECRET, Peer, ReceivedCell};
pub use session::Session;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use onion::cell::msg::{Create2, Extend2, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3, link_specifier};
use onion::cell::{CircId, Command};
use onion::crypto::ntor_v3;
use onion::crypto::ntor_v3::extension::Request;
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ExpectedPeer};
use onion::node::{CloseCause, ConnId, DnsQuery, ListenerId, LookupId, Node};
use onion::router::schedule::SchedulerConfig;
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant};
use rand_core::Rng;

/// The size of the transmit buffer.
const RECORD_BYTES: usize = 16_384;

/// The interval of scheduler runs: the router sends queued cells within it.
pub const RUN: Duration = SchedulerConfig::INTERVAL;

/// Identities with valid certificates, and the time at which they are valid.
#[derive(Clone, Debug)]
pub struct Identities {
    /// The router.
    pub own: Arc<OwnIdentity>,
    /// A relay that dials the router, and that the router dials.
    pub other: Arc<OwnIdentity>,
    /// The certificate of listeners.
    pub certificate: Arc<[u8]>,
    /// The Unix time in seconds at which all certificates are valid.
    pub unix_time_s: u64,
}

impl Identities {
    /// The router's configuration with all defaults.
    #[must_use]
    pub fn config(&self) -> RouterConfig {
        RouterConfig::new(Arc::clone(&self.own), self.unix_time_s)
    }

    /// A client's ntor v3 handshake with the router, which requests congestion control, and the body of its
    /// CREATE2.
    ///
    /// # Panics
    /// If the router's onion key is invalid.
    #[must_use]
    pub fn congestion_control_handshake(&self) -> (ntor_v3::Client, Vec<u8>) {
        let (ed25519_id, onion_key) = (self.own.ed25519.0, self.own.onion_key());
        let keys = ntor_v3::RelayKeys { ed25519_id, onion_key };
        let request = Request { wants_congestion_control: true, ..Request::default() };
        let client = ntor_v3::Client::new(keys, [8; 32], &request.encode()).expect("a good key");
        let mut body = Vec::new();
        let create = Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: client.data() };
        create.encode_into(&mut body);
        (client, body)
    }

    /// The data of an EXTEND2 to the other relay at this IPv4 address and port.
    #[must_use]
    pub fn extend2(&self, address: [u8; 6]) -> Vec<u8> {
        let link_specifiers: Vec<(u8, &[u8])> = vec![
            (link_specifier::IPV4, &address),
            (link_specifier::RSA_IDENTITY, &self.other.rsa.0),
        ];
        let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &[7; 84] };
        let mut data = Vec::new();
        Extend2 { link_specifiers, create }.encode_into(&mut data);
        data
    }
}

/// A router, the time, and the peers of its connections.
#[derive(Debug)]
pub struct Fixture<R> {
    /// The router.
    pub router: Router<R>,
    /// The time.
    pub now: Instant,
    /// The peers of links, in order of creation.
    pub peers: Vec<Peer>,
    /// The indexes of links that the router has dialled; the test removes them.
    pub dialled: VecDeque<usize>,
    /// Destinations that the router dials or is connected to.
    pub destinations: BTreeMap<ConnId, Destination>,
    /// The router's unanswered DNS queries.
    pub queries: VecDeque<(LookupId, DnsQuery)>,
    /// Destinations in the order in which the router has reported them as readable.
    pub readable: Vec<ConnId>,
    /// Connections that the router has closed.
    pub closed: Vec<ConnId>,
    /// The number of timeouts that the router has handled.
    pub wakeups: u64,
    /// Bytes that destinations have received.
    pub delivered_bytes: u64,
    /// The limit on queued bytes of one link, for the number of open circuits.
    pub burst_max_bytes: fn(usize) -> usize,
    identities: Identities,
}

impl<R: Rng> Fixture<R> {
    /// A router without peers.
    pub fn new(identities: Identities, config: RouterConfig, rng: R) -> Self {
        Self {
            router: Router::new(config, rng, Instant::ORIGIN),
            now: Instant::ORIGIN,
            peers: Vec::new(),
            dialled: VecDeque::new(),
            destinations: BTreeMap::new(),
            queries: VecDeque::new(),
            readable: Vec::new(),
            closed: Vec::new(),
            wakeups: 0,
            delivered_bytes: 0,
            burst_max_bytes: |_| usize::MAX,
            identities,
        }
    }

    /// The identities.
    pub const fn identities(&self) -> &Identities {
        &self.identities
    }

    /// The TLS session of a link.
    #[must_use]
    pub fn session(&self, exported: [u8; 32]) -> Session {
        Session { certificate: Arc::clone(&self.identities.certificate), exported }
    }

    /// A peer dials the router. It sends nothing yet; without `authentication`, it never does. Returns the
    /// link's index.
    ///
    /// # Panics
    /// If the certificates are invalid.
    pub fn dial(&mut self, authentication: Option<Authentication>, exported: [u8; 32]) -> usize {
        let session = self.session(exported);
        let conn = self.router.handle_accepted(self.now, ListenerId(0), &session);
        let expected =
            ExpectedPeer { ids: self.identities.own.ids(), address: [10, 0, 0, 1].into() };
        let channel = authentication.map(|authentication| {
            let now_s = self.identities.unix_time_s;
            Channel::initiator(expected, authentication, &session, [1; 24], now_s).expect("usable")
        });
        self.add(conn, channel, exported)
    }

    /// The other relay answers the router's dial and claims these addresses.
    pub fn answer_dial(&mut self, index: usize, claims: &[IpAddr]) {
        let session = self.session(self.peers[index].exported);
        let Some(conn) = self.peers[index].conn else { return };
        let other = Arc::clone(&self.identities.other);
        let channel = Channel::responder(other, &session, [2; 32], self.identities.unix_time_s);
        self.peers[index].channel = Some(channel.at_addresses(claims));
        self.peers[index].is_awaited = false;
        self.router.handle_connected(self.now, conn, &session);
        self.exchange(index);
    }

    fn add(&mut self, conn: Option<ConnId>, channel: Option<Channel>, exported: [u8; 32]) -> usize {
        self.peers.push(Peer {
            conn,
            channel,
            is_awaited: false,
            reads: true,
            exported,
            active_at: self.now,
            received: VecDeque::new(),
        });
        self.peers.len() - 1
    }

    /// A peer sends a cell. All consequences are processed.
    pub fn send_cell(&mut self, index: usize, circ_id: CircId, command: Command, body: &[u8]) {
        self.queue(index, circ_id, command, body);
        self.exchange(index);
    }

    /// A peer queues a cell.
    pub fn queue(&mut self, index: usize, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.peers[index].channel {
            channel.send(circ_id, command, body);
        }
    }

    /// Transmits everything that a peer has queued.
    pub fn exchange(&mut self, index: usize) {
        self.transmit_from(index);
        self.settle();
    }

    fn transmit_from(&mut self, index: usize) {
        let mut buffer = [0; RECORD_BYTES];
        while let Some(channel) = &mut self.peers[index].channel {
            let len = channel.poll_transmit(&mut buffer);
            if len == 0 {
                return;
            }
            self.deliver(index, &buffer[..len]);
        }
    }

    /// Delivers these bytes to the router.
    pub fn deliver_bytes(&mut self, index: usize, bytes: &[u8]) {
        self.deliver(index, bytes);
        self.settle();
    }

    fn deliver(&mut self, index: usize, bytes: &[u8]) {
        let peer = &mut self.peers[index];
        if let Some(conn) = peer.conn.filter(|_| !peer.is_awaited) {
            peer.active_at = self.now;
            self.router.handle_bytes(self.now, conn, bytes);
        }
    }

    /// Closes a link, or fails its connection attempt.
    pub fn close(&mut self, index: usize, cause: CloseCause) {
        self.peers[index].channel = None;
        if let Some(conn) = self.peers[index].conn.take() {
            self.router.handle_closed(self.now, conn, cause);
        }
        self.settle();
    }

    /// A peer reads at most this number of queued bytes.
    ///
    /// # Panics
    /// If more than [`burst_max_bytes`](Self::burst_max_bytes) were queued.
    pub fn read(&mut self, index: usize, most: usize) {
        self.take(index, most);
        self.settle();
    }

    /// A peer reads the router's output.
    fn take(&mut self, index: usize, most: usize) {
        let burst_max = (self.burst_max_bytes)(self.router.open_circuits());
        let mut taken = 0;
        while let Some(conn) = self.peers[index].conn.filter(|_| !self.peers[index].is_awaited)
            && taken < most
        {
            let mut buffer = vec![0; (most - taken).min(RECORD_BYTES)];
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                break;
            }
            taken += len;
            self.peers[index].receive(self.now, &buffer[..len]);
            // The link handshake continues.
            self.transmit_from(index);
        }
        assert!(taken <= burst_max, "{taken} bytes waited, and {burst_max} may");
    }

    /// Lets time pass; timeouts fire on the way.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.wakeups += 1;
            self.router.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }
}
