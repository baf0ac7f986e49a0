//! A router, clients' and relays' links to it, and a relay that it dials.

#[path = "world/hearing.rs"]
mod hearing;

use crate::vectors::{self, RecordedTls};
use onion::cell::msg::{Create2, Extend2, HANDSHAKE_NTOR, LinkPadding, link_specifier};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::ClientHop;
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::node::{CloseCause, ConnId, ListenerId, Node};
use onion::router::schedule::SchedulerConfig;
use onion::router::{Parameters, Router, RouterConfig};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

/// TLS in name only.
#[derive(Clone)]
struct Tls(RecordedTls);

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.peer_certificate()
    }

    fn export_keying_material(&self, _: &[u8], _: &[u8]) -> Option<[u8; 32]> {
        Some([7; 32])
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

static OWN: LazyLock<Arc<OwnIdentity>> = LazyLock::new(|| Arc::new(vectors::identity_link()));
static OTHER: LazyLock<Arc<OwnIdentity>> = LazyLock::new(|| Arc::new(vectors::identity_landing()));

fn unix_time_s() -> u64 {
    vectors::link_to_relay().u64("unix_time_s")
}

fn tls() -> Tls {
    Tls(vectors::own_tls())
}

/// A link by the order in which they came to be.
pub(crate) type NodeIndex = usize;

/// The other end of a link of the router's.
pub(crate) struct End {
    conn: Option<ConnId>,
    channel: Channel,
    hops: BTreeMap<CircId, ClientHop>,
    /// It takes what the router sends.
    pub(crate) reads: bool,
    /// When bytes last passed, either way.
    pub(crate) active_at: Instant,
    /// When PADDING cells have come, and how long nothing had passed before.
    pub(crate) padded: Vec<(Instant, Duration)>,
    /// All other cells that have come.
    pub(crate) came: Vec<(CircId, Command)>,
}

impl End {
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.padded.iter().map(|(_, pause)| *pause).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.conn.is_none()
    }
}

pub(crate) struct World {
    /// Where the relay that it dials says to be.
    pub(crate) claims: Vec<IpAddr>,
    /// That relay ends each connection before the link stands.
    pub(crate) refuses: bool,
    pub(crate) router: Router<ChaCha8Rng>,
    pub(crate) now: Instant,
    pub(crate) ends: Vec<End>,
    /// How often the router was woken.
    pub(crate) wakings: u64,
}

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

pub(crate) fn config() -> RouterConfig {
    // Cells leave at once: this is no test of scheduling.
    let scheduler = SchedulerConfig::vanilla();
    RouterConfig { scheduler, ..RouterConfig::new(Arc::clone(&OWN), unix_time_s()) }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: RouterConfig) -> Self {
        let now = Instant::ORIGIN;
        let router = Router::new(config, ChaCha8Rng::from_seed([1; 32]), now);
        Self {
            claims: vec![[10, 0, 0, 2].into()],
            refuses: false,
            router,
            now,
            ends: Vec::new(),
            wakings: 0,
        }
    }

    /// With a client's link, and a circuit on it that goes on from the router.
    pub(crate) fn with_client() -> (Self, NodeIndex) {
        Self::new_with(&[])
    }

    /// The same, by another consensus.
    pub(crate) fn new_with(parameters: &[(&str, i32)]) -> (Self, NodeIndex) {
        let mut world = Self::new();
        world.set(parameters);
        let client = world.accept(Authentication::Anonymous);
        world.build(client, CIRCUIT);
        (world, client)
    }

    pub(crate) fn set(&mut self, parameters: &[(&str, i32)]) {
        self.router.set_parameters(Parameters::from_consensus(parameters.iter().copied()));
    }

    fn add(&mut self, conn: Option<ConnId>, channel: Channel) -> NodeIndex {
        self.ends.push(End {
            conn,
            channel,
            hops: BTreeMap::new(),
            reads: true,
            active_at: self.now,
            padded: Vec::new(),
            came: Vec::new(),
        });
        self.ends.len() - 1
    }

    fn dial(&mut self, authentication: Authentication) -> NodeIndex {
        let expected = ExpectedPeer { ids: OWN.ids(), address: [10, 0, 0, 1].into() };
        let channel = Channel::initiator(expected, authentication, &tls(), [1; 24], unix_time_s());
        let conn = self.router.handle_accepted(self.now, ListenerId(0), &tls());
        self.add(conn, channel.expect("usable"))
    }

    /// A client dials the router, or a relay that proves who it is.
    pub(crate) fn accept(&mut self, authentication: Authentication) -> NodeIndex {
        let place = self.dial(authentication);
        self.exchange(place);
        assert!(self.ends[place].channel.is_open());
        place
    }

    pub(crate) fn accept_relay(&mut self) -> NodeIndex {
        self.accept(Authentication::AsRelay(Arc::clone(&OTHER)))
    }

    /// A client of which the router hears that it knows version 4 of the link protocol only.
    pub(crate) fn accept_version_4(&mut self) -> NodeIndex {
        let place = self.dial(Authentication::Anonymous);
        let mut versions = [0; 9];
        assert_eq!(self.ends[place].channel.poll_transmit(&mut versions), versions.len());
        self.feed(place, &[0, 0, 7, 0, 2, 0, 4]);
        self.exchange(place);
        assert!(self.ends[place].channel.is_open());
        place
    }

    /// A client that negotiates before the link is open.
    pub(crate) fn accept_hasty(&mut self) -> NodeIndex {
        let place = self.dial(Authentication::Anonymous);
        let mut versions = [0; 9];
        assert_eq!(self.ends[place].channel.poll_transmit(&mut versions), versions.len());
        // It would go on with NETINFO.
        self.ends[place].reads = false;
        self.feed(place, &versions);
        let mut cell = [0; onion::cell::CELL_LEN];
        cell[4..7].copy_from_slice(&[Command::PADDING_NEGOTIATE.get(), 0, 2]);
        self.feed(place, &cell);
        place
    }

    fn feed(&mut self, place: NodeIndex, bytes: &[u8]) {
        if let Some(conn) = self.ends[place].conn {
            self.ends[place].active_at = self.now;
            self.router.handle_bytes(self.now, conn, bytes);
        }
        self.settle();
    }

    /// Hands over what the other end of a link has to say.
    fn exchange(&mut self, place: NodeIndex) {
        let mut buffer = [0; 16_384];
        loop {
            let len = self.ends[place].channel.poll_transmit(&mut buffer);
            if len == 0 {
                return;
            }
            self.feed(place, &buffer[..len]);
        }
    }

    pub(crate) fn say(&mut self, place: NodeIndex, circ_id: CircId, command: Command, body: &[u8]) {
        self.ends[place].channel.send(circ_id, command, body);
        self.exchange(place);
    }

    pub(crate) fn negotiate(
        &mut self,
        place: NodeIndex,
        is_wanted: bool,
        low_ms: u16,
        high_ms: u16,
    ) {
        let mut body = Vec::new();
        LinkPadding { is_wanted, low_ms, high_ms }.encode_into(&mut body);
        self.say(place, CircId::LINK, Command::PADDING_NEGOTIATE, &body);
    }

    /// A circuit that ends at the router.
    pub(crate) fn create(&mut self, place: NodeIndex, circ_id: CircId) {
        self.say(place, circ_id, Command::CREATE_FAST, &[3; 20]);
        assert!(self.ends[place].hops.contains_key(&circ_id), "created");
    }

    /// A circuit that goes on from the router to another relay.
    pub(crate) fn extend(&mut self, place: NodeIndex, circ_id: CircId) {
        self.ask_to_extend(place, circ_id);
        let last = self.ends[place].came.last();
        assert_eq!(last, Some(&(circ_id, Command::RELAY)), "extended");
    }

    pub(crate) fn ask_to_extend(&mut self, place: NodeIndex, circ_id: CircId) {
        self.create(place, circ_id);
        let address = [10, 0, 0, 2, 35, 41];
        let link_specifiers: Vec<(u8, &[u8])> =
            vec![(link_specifier::IPV4, &address), (link_specifier::RSA_IDENTITY, &OTHER.rsa.0)];
        let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &[7; 84] };
        let mut data = Vec::new();
        Extend2 { link_specifiers, create }.encode_into(&mut data);
        self.say_message(place, circ_id, Command::RELAY_EARLY, RelayCommand::EXTEND2, &data);
    }

    /// The same, with a hop beyond the next: the link is used.
    pub(crate) fn build(&mut self, place: NodeIndex, circ_id: CircId) {
        self.extend(place, circ_id);
        self.say(place, circ_id, Command::RELAY_EARLY, &[8; BODY_LEN]);
    }

    /// Says something to the router on a circuit.
    pub(crate) fn say_message(
        &mut self,
        place: NodeIndex,
        circ_id: CircId,
        cell: Command,
        command: RelayCommand,
        data: &[u8],
    ) {
        let hop = self.ends[place].hops.get_mut(&circ_id).expect("a circuit");
        let mut body = RelayMessage { command, stream_id: 0, data }.to_body().expect("fits");
        hop.encrypt(&mut body);
        self.say(place, circ_id, cell, &body);
    }

    /// The circuit that the router has opened last on the link that it dialled.
    pub(crate) fn opened_by_router(&self, place: NodeIndex) -> CircId {
        let mut all = self.ends[place].came.iter().rev();
        all.find(|(_, command)| *command == Command::CREATE2).expect("opened").0
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.wakings += 1;
            self.router.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    /// The pauses before all PADDING cells that come on a link in this time.
    pub(crate) fn pauses_in(&mut self, place: NodeIndex, time: Duration) -> Vec<Duration> {
        self.ends[place].padded.clear();
        self.pass(time);
        self.ends[place].pauses()
    }

    pub(crate) fn hang_up(&mut self, place: NodeIndex) {
        let conn = self.ends[place].conn.take().expect("open");
        self.router.handle_closed(self.now, conn, CloseCause::ByPeer);
        self.settle();
    }
}
