//! One router on bytes, and whoever is at the other ends of its connections: for tests of the engine and for fuzzing.
//!
//! What [`stage`](crate::stage) is at the seam of cells, this is at that of bytes: with the handshakes of links,
//! their framing and tor's cryptography, and no wire between. The router is scheduled as relays are, so what it sends on circuits may wait
//! for the next run: [`pass`](Fixture::pass) a [`RUN`].
//!
//! The fixture moves bytes. What cells say is for the test to read, from [`End::came`], and to answer.

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

/// What is transmitted at once.
const RECORD_BYTES: usize = 16_384;

/// From one run of the scheduler to the next: what waits for its run leaves within.
pub const RUN: Duration = SchedulerConfig::INTERVAL;

/// Who takes part. They need certificates that hold, so somebody must have made or recorded them.
#[derive(Clone, Debug)]
pub struct Parties {
    /// The router.
    pub own: Arc<OwnIdentity>,
    /// A relay that dials it, and that it dials.
    pub other: Arc<OwnIdentity>,
    /// What listeners show.
    pub certificate: Arc<[u8]>,
    /// Seconds since 1970 at which all certificates are good.
    pub unix_time_s: u64,
}

impl Parties {
    /// The router's configuration with all defaults.
    #[must_use]
    pub fn config(&self) -> RouterConfig {
        RouterConfig::new(Arc::clone(&self.own), self.unix_time_s)
    }

    /// A client that asks the router for a circuit with congestion control, by ntor of version 3; and the body of its
    /// CREATE2.
    ///
    /// # Panics
    /// If the router's onion key is none.
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

/// A router, the time, and all that is connected to it.
#[derive(Debug)]
pub struct Fixture<R> {
    /// The router.
    pub router: Router<R>,
    /// The time.
    pub now: Instant,
    /// Other ends of links, in the order in which they came to be.
    pub ends: Vec<End>,
    /// Links that the router has dialled since this was last looked at, by their places.
    pub dialled: VecDeque<usize>,
    /// Destinations that the router is connected to, or wants to be.
    pub destinations: BTreeMap<ConnId, Destination>,
    /// What the router has asked the domain name system.
    pub questions: VecDeque<(LookupId, DnsQuery)>,
    /// Destinations in the order in which the router has named them as readable.
    pub readable: Vec<ConnId>,
    /// What the router has closed.
    pub closed: Vec<ConnId>,
    /// How often the router was woken by time.
    pub wakings: u64,
    /// Bytes that destinations have taken.
    pub delivered_bytes: u64,
    /// The most bytes that may wait on one link while so many circuits are open.
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

    /// Who takes part.
    pub const fn parties(&self) -> &Parties {
        &self.parties
    }

    /// The session of a link.
    #[must_use]
    pub fn session(&self, exported: [u8; 32]) -> Session {
        Session { certificate: Arc::clone(&self.parties.certificate), exported }
    }

    /// Somebody dials the router. Nothing is said yet, and never if there is no `authentication`. Gives the link's place.
    ///
    /// # Panics
    /// If the certificates do not hold.
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

    /// The other relay answers the router's dial, and claims to be at these addresses.
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

    /// Sends a cell; whatever follows from that happens.
    pub fn say(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        self.queue(place, circ_id, command, body);
        self.exchange(place);
    }

    /// Has a cell ready to be sent.
    pub fn queue(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        if let Some(channel) = &mut self.ends[place].channel {
            channel.send(circ_id, command, body);
        }
    }

    /// Hands over what the other end of a link has to say, until it has nothing more.
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

    /// These bytes come on a link.
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

    /// A link goes, or could not be made.
    pub fn close(&mut self, place: usize, cause: CloseCause) {
        self.ends[place].channel = None;
        if let Some(conn) = self.ends[place].conn.take() {
            self.router.handle_closed(self.now, conn, cause);
        }
        self.settle();
    }

    /// Reads what has waited on a link: so many bytes at most.
    ///
    /// # Panics
    /// If that is more than [`burst_max_bytes`](Self::burst_max_bytes).
    pub fn read(&mut self, place: usize, most: usize) {
        self.take(place, most);
        self.settle();
    }

    /// Takes what the router has for a link.
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
            // The link's handshake goes on.
            self.hand_over(place);
        }
        assert!(taken <= burst_max, "{taken} bytes waited, and {burst_max} may");
    }

    /// Lets time pass; whatever is due on the way happens when it is due.
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
