//! A router, one client's link to it, and destinations that do as a test says.

#[path = "world/hearing.rs"]
mod hearing;

use crate::vectors::{self, RecordedTls};
use onion::cell::msg::{Begin, BeginFlags, Create2, DestroyReason, HANDSHAKE_NTOR_V3};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{CircId, Command};
use onion::crypto::ntor_v3::extension::Request;
use onion::crypto::{ClientHop, HopKeys, ntor_v3};
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::node::{Answer, CloseCause, ConnId, ListenerId, LookupId, Node, Question};
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

/// More than any reaction takes.
const POLLS_MAX: u32 = 100_000;

/// TLS in name only.
struct Tls(RecordedTls);

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.peer_certificate()
    }

    fn export_keying_material(&self, _: &[u8], _: &[u8]) -> Option<[u8; 32]> {
        Some([7; 32])
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(Self(self.0.clone())))
    }
}

static OWN: LazyLock<Arc<OwnIdentity>> = LazyLock::new(|| Arc::new(vectors::identity_link()));
static OTHER: LazyLock<Arc<OwnIdentity>> = LazyLock::new(|| Arc::new(vectors::identity_landing()));

fn unix_time_s() -> u64 {
    vectors::link_to_relay().u64("unix_time_s")
}

/// A relay message that has come from the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) command: RelayCommand,
    pub(crate) stream_id: u16,
    pub(crate) data: Vec<u8>,
}

/// A circuit of one hop.
pub(crate) struct Circuit {
    pub(crate) hop: ClientHop,
    pub(crate) heard: VecDeque<Heard>,
    /// Tags of the DATA cells that have come.
    pub(crate) tags: Vec<[u8; 20]>,
    pub(crate) destroyed: Option<DestroyReason>,
}

/// A connection to a destination.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) to: SocketAddr,
    pub(crate) is_connected: bool,
    /// Takes what it is sent.
    pub(crate) reads: bool,
    pub(crate) received: Vec<u8>,
    /// Has been named as readable since this was last cleared.
    pub(crate) is_readable: bool,
}

pub(crate) struct World {
    pub(crate) router: Router<ChaCha8Rng>,
    pub(crate) now: Instant,
    link: Option<ConnId>,
    /// The latest CREATED2.
    created: Option<Vec<u8>>,
    channel: Channel,
    /// The client reads what its link brings.
    pub(crate) reads: bool,
    pub(crate) circuits: BTreeMap<CircId, Circuit>,
    pub(crate) destinations: BTreeMap<ConnId, Destination>,
    pub(crate) questions: VecDeque<(LookupId, Question)>,
    /// Connections in the order in which they were named as readable.
    pub(crate) readable: Vec<ConnId>,
    pub(crate) closed: Vec<ConnId>,
}

/// A relay that lets everything out.
pub(crate) fn exit() -> RouterConfig {
    let policy = ExitPolicy::accept_all();
    let exit = Some(ExitConfig { policy, ipv6: true, allows_single_hop: false });
    let directory = Some(SocketAddr::from(([127, 0, 0, 1], 9030)));
    RouterConfig { exit, directory, ..middle() }
}

/// A relay that lets nothing out.
pub(crate) fn middle() -> RouterConfig {
    // Cells leave at once: this is no test of scheduling.
    let scheduler = SchedulerConfig::vanilla();
    RouterConfig { scheduler, ..RouterConfig::new(Arc::clone(&OWN), unix_time_s()) }
}

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

impl World {
    /// The client's link comes from another relay, unless the client `is_alone`; one circuit stands.
    pub(crate) fn new(config: RouterConfig, is_alone: bool) -> Self {
        let now = Instant::ORIGIN;
        let router = Router::new(config, ChaCha8Rng::from_seed([1; 32]), now);
        let authentication = if is_alone {
            Authentication::Anonymous
        } else {
            Authentication::AsRelay(Arc::clone(&OTHER))
        };
        let expected = ExpectedPeer { ids: OWN.ids(), address: [10, 0, 0, 1].into() };
        let tls = Tls(vectors::own_tls());
        let channel = Channel::initiator(expected, authentication, &tls, [1; 24], unix_time_s());
        let mut world = Self {
            router,
            now,
            link: None,
            created: None,
            channel: channel.expect("usable"),
            reads: true,
            circuits: BTreeMap::new(),
            destinations: BTreeMap::new(),
            questions: VecDeque::new(),
            readable: Vec::new(),
            closed: Vec::new(),
        };
        world.link = world.router.handle_accepted(now, ListenerId(0), &tls);
        world.exchange();
        assert!(world.channel.is_open());
        world.create(CIRCUIT);
        world
    }

    pub(crate) fn exit() -> Self {
        Self::new(exit(), false)
    }

    /// Hands over what the client's end of the link has to say, and does what the router wants.
    pub(crate) fn exchange(&mut self) {
        let mut buffer = [0; 16_384];
        loop {
            let len = self.channel.poll_transmit(&mut buffer);
            if let Some(link) = self.link.filter(|_| len > 0) {
                self.router.handle_bytes(self.now, link, &buffer[..len]);
            }
            self.settle();
            if len == 0 && self.channel.queued_len() == 0 {
                return;
            }
        }
    }

    /// Sends a cell of any kind; nothing is answered yet.
    pub(crate) fn queue(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        self.channel.send(circ_id, command, body);
    }

    pub(crate) fn create(&mut self, circ_id: CircId) {
        self.queue(circ_id, Command::CREATE_FAST, &[3; 20]);
        self.exchange();
    }

    /// A circuit by ntor of version 3, with congestion control.
    pub(crate) fn create_with_congestion_control(&mut self, circ_id: CircId) {
        let keys = ntor_v3::RelayKeys { ed25519_id: OWN.ed25519.0, onion_key: OWN.onion_key() };
        let request = Request { wants_congestion_control: true, wants_protocols: false };
        let client = ntor_v3::Client::new(keys, [8; 32], &request.encode()).expect("a good key");
        let mut body = Vec::new();
        let create = Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: client.data() };
        create.encode_into(&mut body);
        self.queue(circ_id, Command::CREATE2, &body);
        self.exchange();
        let created = self.created.take().expect("answered");
        let (_, keys) = client.finish(&created).expect("honest");
        self.add_circuit(circ_id, &keys);
    }

    fn add_circuit(&mut self, circ_id: CircId, keys: &HopKeys) {
        let circuit = Circuit {
            hop: ClientHop::new(keys),
            heard: VecDeque::new(),
            tags: Vec::new(),
            destroyed: None,
        };
        self.circuits.insert(circ_id, circuit);
    }

    /// Says something on a circuit.
    pub(crate) fn say_on(
        &mut self,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        self.queue_message(circ_id, Command::RELAY, RelayMessage { command, stream_id, data });
        self.exchange();
    }

    /// Sends a relay message; nothing is answered yet.
    pub(crate) fn queue_message(
        &mut self,
        circ_id: CircId,
        command: Command,
        message: RelayMessage<'_>,
    ) {
        let circuit = self.circuits.get_mut(&circ_id).expect("a circuit");
        let mut body = message.to_body().expect("fits");
        circuit.hop.encrypt(&mut body);
        self.queue(circ_id, command, &body);
    }

    /// The same for a message that must come in RELAY_EARLY.
    pub(crate) fn say_early(&mut self, circ_id: CircId, command: RelayCommand, data: &[u8]) {
        let message = RelayMessage { command, stream_id: 0, data };
        self.queue_message(circ_id, Command::RELAY_EARLY, message);
        self.exchange();
    }

    pub(crate) fn say(&mut self, command: RelayCommand, stream_id: u16, data: &[u8]) {
        self.say_on(CIRCUIT, command, stream_id, data);
    }

    pub(crate) fn begin_with(&mut self, stream_id: u16, host: &str, port: u16, flags: BeginFlags) {
        let mut data = Vec::new();
        Begin { host, port, flags }.encode_into(&mut data);
        self.say(RelayCommand::BEGIN, stream_id, &data);
    }

    pub(crate) fn begin(&mut self, stream_id: u16, host: &str, port: u16) {
        self.begin_with(stream_id, host, port, BeginFlags::default());
    }

    /// A stream that stands, and its connection.
    #[track_caller]
    pub(crate) fn open(&mut self, stream_id: u16) -> ConnId {
        self.open_on(CIRCUIT, stream_id)
    }

    #[track_caller]
    pub(crate) fn open_on(&mut self, circ_id: CircId, stream_id: u16) -> ConnId {
        let known: Vec<ConnId> = self.destinations.keys().copied().collect();
        self.say_on(circ_id, RelayCommand::BEGIN, stream_id, b"192.0.2.1:80\0");
        let conn = self.destinations.keys().copied().find(|conn| !known.contains(conn));
        let conn = conn.expect("it is dialled");
        self.connect(conn);
        let connected = self.hear_on(circ_id);
        assert_eq!((connected.command, connected.stream_id), (RelayCommand::CONNECTED, stream_id));
        self.destination(conn).is_readable = false;
        self.readable.clear();
        conn
    }

    pub(crate) fn destination(&mut self, conn: ConnId) -> &mut Destination {
        self.destinations.get_mut(&conn).expect("a destination")
    }

    /// The only connection that was dialled.
    #[track_caller]
    pub(crate) fn dialled(&self) -> ConnId {
        assert_eq!(self.destinations.len(), 1);
        *self.destinations.keys().next().expect("one")
    }

    pub(crate) fn connect(&mut self, conn: ConnId) {
        self.destination(conn).is_connected = true;
        self.router.handle_plain_connected(self.now, conn);
        self.settle();
    }

    /// The destination closes, or could not be connected to.
    pub(crate) fn lose(&mut self, conn: ConnId, cause: CloseCause) {
        self.destinations.remove(&conn);
        self.router.handle_closed(self.now, conn, cause);
        self.settle();
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        let (id, _) = self.questions.pop_front().expect("a question");
        self.router.handle_answer(self.now, id, answer);
        self.settle();
    }

    /// The destination sends as much of this as is taken from it; returns how much.
    pub(crate) fn feed(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let limit = self.router.receive_limit(conn).min(16_384).min(bytes.len() - taken);
            if limit == 0 {
                return taken;
            }
            self.router.handle_bytes(self.now, conn, &bytes[taken..taken + limit]);
            taken += limit;
            self.settle();
        }
    }

    /// The destination takes what waits for it.
    pub(crate) fn release(&mut self, conn: ConnId) {
        self.destination(conn).reads = true;
        self.flush_destination(conn);
        self.settle();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.router.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    /// The client's link goes.
    pub(crate) fn hang_up(&mut self) {
        let link = self.link.take().expect("a link");
        self.router.handle_closed(self.now, link, CloseCause::ByPeer);
        self.settle();
    }

    /// Reads what has waited on the client's link: so many bytes at most.
    pub(crate) fn read_link(&mut self, most: usize) {
        let mut taken = 0;
        while let Some(link) = self.link
            && taken < most
        {
            let mut buffer = vec![0; (most - taken).min(16_384)];
            let len = self.router.poll_transmit(self.now, link, &mut buffer);
            if len == 0 {
                break;
            }
            taken += len;
            self.hear_bytes(&buffer[..len]);
        }
        self.settle();
    }
}

/// Bytes that are not all the same.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at).to_le_bytes()[0]).collect()
}
