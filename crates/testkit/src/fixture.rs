//! One router on bytes and the peers of its connections: for tests of the engine and for fuzzing.
//!
//! Like [`stage`](crate::stage), but on bytes: with link handshakes, framing and tor's cryptography, and no
//! network between. The router uses the default scheduler, so cells may wait for its next run:
//! [`pass`](Fixture::pass) a [`RUN`].
//!
//! The fixture moves bytes. The test reads cells from [`End::came`] and answers them.

mod actions;
mod ends;
mod session;
mod streams;

pub use ends::{Came, Destination, End};
pub use session::Session;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use onion::cell::msg::{Create2, HANDSHAKE_NTOR_V3};
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

/// The interval of scheduler runs: waiting cells are sent within it.
pub const RUN: Duration = SchedulerConfig::INTERVAL;

/// The identities. They need valid certificates, so somebody must have created or recorded them.
#[derive(Clone, Debug)]
pub struct Parties {
    /// The router.
    pub own: Arc<OwnIdentity>,
    /// A relay that dials the router and is dialled by it.
    pub other: Arc<OwnIdentity>,
    /// The certificate of listeners.
    pub certificate: Arc<[u8]>,
    /// The Unix time in seconds at which all certificates are valid.
    pub unix_time_s: u64,
}

impl Parties {
    /// The router's configuration with all defaults.
    #[must_use]
    pub fn config(&self) -> RouterConfig {
        RouterConfig::new(Arc::clone(&self.own), self.unix_time_s)
    }

    /// A client's ntor v3 handshake with the router that requests congestion control, and the body of its
    /// CREATE2.
    ///
    /// # Panics
    /// If the router's onion key is invalid.
    #[must_use]
    pub fn ask_for_congestion_control(&self) -> (ntor_v3::Client, Vec<u8>) {
        let (ed25519_id, onion_key) = (self.own.ed25519.0, self.own.onion_key());
        let keys = ntor_v3::RelayKeys { ed25519_id, onion_key };
        let request = Request { wants_congestion_control: true, ..Request::default() };
        let client = ntor_v3::Client::new(keys, [8; 32], &request.encode()).expect("a good key");
        let mut body = Vec::new();
        let create = Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: client.data() };
        create.encode_into(&mut body);
        (client, body)
    }
}

/// A router, the time, and the peers of its connections.
#[derive(Debug)]
pub struct Fixture<R> {
    /// The router.
    pub router: Router<R>,
    /// The time.
    pub now: Instant,
    /// Peers of links, in order of creation.
    pub ends: Vec<End>,
    /// The indexes of links that the router has dialled since the last check.
    pub dialled: VecDeque<usize>,
    /// Destinations that the router is connected to or dials.
    pub destinations: BTreeMap<ConnId, Destination>,
    /// The router's DNS queries.
    pub questions: VecDeque<(LookupId, DnsQuery)>,
    /// Destinations in the order in which the router has named them as readable.
    pub readable: Vec<ConnId>,
    /// Connections that the router has closed.
    pub closed: Vec<ConnId>,
    /// How often a timeout has woken the router.
    pub wakings: u64,
    /// Bytes that destinations have received.
    pub delivered_bytes: u64,
    /// Maximum number of bytes that may be queued on one link while this number of circuits are open.
    pub burst_max_bytes: fn(usize) -> usize,
    parties: Parties,
}

impl<R: Rng> Fixture<R> {
    /// A router alone.
    pub fn new(parties: Parties, config: RouterConfig, rng: R) -> Self {
        Self {
            router: Router::new(config, rng, Instant::ORIGIN),
            now: Instant::ORIGIN,
            ends: Vec::new(),
            dialled: VecDeque::new(),
            destinations: BTreeMap::new(),
            questions: VecDeque::new(),
            readable: Vec::new(),
            closed: Vec::new(),
            wakings: 0,
            delivered_bytes: 0,
            burst_max_bytes: |_| usize::MAX,
            parties,
        }
    }

    /// The identities.
    pub const fn parties(&self) -> &Parties {
        &self.parties
    }

    /// The session of a link.
    #[must_use]
    pub fn session(&self, exported: [u8; 32]) -> Session {
        Session { certificate: Arc::clone(&self.parties.certificate), exported }
    }

    /// A peer dials the router. It sends nothing yet, and never without `authentication`. Returns the link's
    /// index.
    ///
    /// # Panics
    /// If the certificates are invalid.
    pub fn dial(&mut self, authentication: Option<Authentication>, exported: [u8; 32]) -> usize {
        let session = self.session(exported);
        let conn = self.router.handle_accepted(self.now, ListenerId(0), &session);
        let expected = ExpectedPeer { ids: self.parties.own.ids(), address: [10, 0, 0, 1].into() };
        let channel = authentication.map(|authentication| {
            let now_s = self.parties.unix_time_s;
            Channel::initiator(expected, authentication, &session, [1; 24], now_s).expect("usable")
        });
        self.add(conn, channel, exported)
    }

    /// The other relay answers the router's dial and claims these addresses.
    pub fn answer_dial(&mut self, place: usize, claims: &[IpAddr]) {
        let session = self.session(self.ends[place].exported);
        let Some(conn) = self.ends[place].conn else { return };
        let other = Arc::clone(&self.parties.other);
        let channel = Channel::responder(other, &session, [2; 32], self.parties.unix_time_s);
        self.ends[place].channel = Some(channel.at_addresses(claims));
        self.ends[place].is_awaited = false;
        self.router.handle_connected(self.now, conn, &session);
        self.exchange(place);
    }

    fn add(&mut self, conn: Option<ConnId>, channel: Option<Channel>, exported: [u8; 32]) -> usize {
        self.ends.push(End {
            conn,
            channel,
            is_awaited: false,
            reads: true,
            exported,
            active_at: self.now,
            came: VecDeque::new(),
        });
        self.ends.len() - 1
    }

    /// Sends a cell and processes everything that follows.
    pub fn say(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        self.queue(place, circ_id, command, body);
        self.exchange(place);
    }

    /// Queues a cell.
    pub fn queue(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.ends[place].channel {
            channel.send(circ_id, command, body);
        }
    }

    /// Transmits what a link's peer has queued until nothing is left.
    pub fn exchange(&mut self, place: usize) {
        self.hand_over(place);
        self.settle();
    }

    fn hand_over(&mut self, place: usize) {
        let mut buffer = [0; RECORD_BYTES];
        while let Some(channel) = &mut self.ends[place].channel {
            let len = channel.poll_transmit(&mut buffer);
            if len == 0 {
                return;
            }
            self.bring(place, &buffer[..len]);
        }
    }

    /// These bytes arrive on a link.
    pub fn feed(&mut self, place: usize, bytes: &[u8]) {
        self.bring(place, bytes);
        self.settle();
    }

    fn bring(&mut self, place: usize, bytes: &[u8]) {
        let end = &mut self.ends[place];
        if let Some(conn) = end.conn.filter(|_| !end.is_awaited) {
            end.active_at = self.now;
            self.router.handle_bytes(self.now, conn, bytes);
        }
    }

    /// A link is closed, or could not be established.
    pub fn close(&mut self, place: usize, cause: CloseCause) {
        self.ends[place].channel = None;
        if let Some(conn) = self.ends[place].conn.take() {
            self.router.handle_closed(self.now, conn, cause);
        }
        self.settle();
    }

    /// Reads at most this number of queued bytes of a link.
    ///
    /// # Panics
    /// If more than [`burst_max_bytes`](Self::burst_max_bytes) were queued.
    pub fn read(&mut self, place: usize, most: usize) {
        self.take(place, most);
        self.settle();
    }

    /// Reads what the router has for a link.
    fn take(&mut self, place: usize, most: usize) {
        let burst_max = (self.burst_max_bytes)(self.router.open_circuits());
        let mut taken = 0;
        while let Some(conn) = self.ends[place].conn.filter(|_| !self.ends[place].is_awaited)
            && taken < most
        {
            let mut buffer = vec![0; (most - taken).min(RECORD_BYTES)];
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                break;
            }
            taken += len;
            self.ends[place].hear(self.now, &buffer[..len]);
            // The link handshake continues.
            self.hand_over(place);
        }
        assert!(taken <= burst_max, "{taken} bytes waited, and {burst_max} may");
    }

    /// Lets time pass; timeouts fire on the way.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.wakings += 1;
            self.router.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }
}
