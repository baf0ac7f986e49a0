//! A router, one client's link to it, and destinations controlled by the test.

mod receiving;

use onion::Duration;
use onion::cell::msg::{Begin, BeginFlags, DestroyReason};
use onion::cell::relay::{RelayCommand, RelayFormat, RelayMessage};
use onion::cell::{CircId, Command};
use onion::crypto::{ClientHop, HopKeys};
use onion::link::Authentication;
use onion::node::{CloseCause, ConnId, DnsAnswer};
use onion::router::{ExitConfig, ExitPolicy, RouterConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::fixture::{FAST_SECRET, Fixture, RUN};
use testkit::vectors;

/// A relay message from the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) command: RelayCommand,
    pub(crate) stream_id: u16,
    pub(crate) data: Vec<u8>,
}

/// A circuit of one hop.
pub(crate) struct Circuit {
    pub(crate) hop: ClientHop,
    pub(crate) messages: VecDeque<Message>,
    /// The tags of received DATA cells.
    pub(crate) tags: Vec<[u8; 20]>,
    pub(crate) destroyed: Option<DestroyReason>,
}

/// A router and its client. The scheduler runs after each event, so that no cells stay queued.
pub(crate) struct World {
    fixture: Fixture<ChaCha8Rng>,
    /// The latest CREATED2.
    created: Option<Vec<u8>>,
    pub(crate) circuits: BTreeMap<CircId, Circuit>,
}

testkit::deref_to_fixture!(World);

/// The client's link.
const LINK: usize = 0;

/// The configuration of an exit to all addresses.
pub(crate) fn exit() -> RouterConfig {
    let policy = ExitPolicy::accept_all();
    let exit = Some(ExitConfig { policy, ipv6: true, allows_single_hop: false });
    let directory = Some(SocketAddr::from(([127, 0, 0, 1], 9030)));
    RouterConfig { exit, directory, ..middle() }
}

/// The configuration of a relay that is not an exit.
pub(crate) fn middle() -> RouterConfig {
    vectors::IDENTITIES.config()
}

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

impl World {
    /// With one open circuit. Its client is directly connected if `is_alone`, else behind another relay.
    pub(crate) fn new(config: RouterConfig, is_alone: bool) -> Self {
        let rng = ChaCha8Rng::from_seed([1; 32]);
        let fixture = Fixture::new(vectors::IDENTITIES.clone(), config, rng);
        let mut world = Self { fixture, created: None, circuits: BTreeMap::new() };
        let authentication = match is_alone {
            true => Authentication::Anonymous,
            false => Authentication::AsRelay(Arc::clone(&vectors::IDENTITIES.other)),
        };
        assert_eq!(world.dial(Some(authentication), [7; 32]), LINK);
        world.exchange();
        assert!(world.peers[LINK].is_open());
        world.create(CIRCUIT);
        world
    }

    pub(crate) fn exit() -> Self {
        Self::new(exit(), false)
    }

    /// Transmits the client's queued cells, and receives the answers.
    pub(crate) fn exchange(&mut self) {
        self.fixture.exchange(LINK);
        self.advance(RUN);
    }

    /// Queues a cell of any kind.
    pub(crate) fn queue(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        self.fixture.queue(LINK, circ_id, command, body);
    }

    pub(crate) fn create(&mut self, circ_id: CircId) {
        self.queue(circ_id, Command::CREATE_FAST, &FAST_SECRET);
        self.exchange();
    }

    /// Creates a circuit by ntor v3, with congestion control.
    pub(crate) fn create_with_congestion_control(&mut self, circ_id: CircId) {
        let (client, body) = vectors::IDENTITIES.congestion_control_handshake();
        self.queue(circ_id, Command::CREATE2, &body);
        self.exchange();
        let created = self.created.take().expect("answered");
        let (_, keys) = client.finish(&created, RelayFormat::V0).expect("valid");
        self.add_circuit(circ_id, keys.tor1().expect("keys of tor1"));
    }

    fn add_circuit(&mut self, circ_id: CircId, keys: &HopKeys) {
        let circuit = Circuit {
            hop: ClientHop::new(keys),
            messages: VecDeque::new(),
            tags: Vec::new(),
            destroyed: None,
        };
        self.circuits.insert(circ_id, circuit);
    }

    /// Sends a relay message on a circuit.
    pub(crate) fn send_on(
        &mut self,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        self.queue_message(circ_id, Command::RELAY, RelayMessage { command, stream_id, data });
        self.exchange();
    }

    /// Queues a relay message.
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

    /// Sends a relay message in RELAY_EARLY.
    pub(crate) fn send_early(&mut self, circ_id: CircId, command: RelayCommand, data: &[u8]) {
        let message = RelayMessage { command, stream_id: 0, data };
        self.queue_message(circ_id, Command::RELAY_EARLY, message);
        self.exchange();
    }

    pub(crate) fn send(&mut self, command: RelayCommand, stream_id: u16, data: &[u8]) {
        self.send_on(CIRCUIT, command, stream_id, data);
    }

    pub(crate) fn begin_with(&mut self, stream_id: u16, host: &str, port: u16, flags: BeginFlags) {
        let mut data = Vec::new();
        Begin { host, port, flags }.encode_into(&mut data);
        self.send(RelayCommand::BEGIN, stream_id, &data);
    }

    pub(crate) fn begin(&mut self, stream_id: u16, host: &str, port: u16) {
        self.begin_with(stream_id, host, port, BeginFlags::default());
    }

    /// Opens a stream. Returns the connection to its destination.
    #[track_caller]
    pub(crate) fn open(&mut self, stream_id: u16) -> ConnId {
        self.open_on(CIRCUIT, stream_id)
    }

    #[track_caller]
    pub(crate) fn open_on(&mut self, circ_id: CircId, stream_id: u16) -> ConnId {
        let known: Vec<ConnId> = self.destinations.keys().copied().collect();
        self.send_on(circ_id, RelayCommand::BEGIN, stream_id, b"192.0.2.1:80\0");
        let conn = self.destinations.keys().copied().find(|conn| !known.contains(conn));
        let conn = conn.expect("the router dials");
        self.connect(conn);
        let connected = self.next_message_on(circ_id);
        assert_eq!((connected.command, connected.stream_id), (RelayCommand::CONNECTED, stream_id));
        self.destination(conn).is_readable = false;
        self.readable.clear();
        conn
    }

    /// The only connection that the router dialled.
    #[track_caller]
    pub(crate) fn dialled(&self) -> ConnId {
        assert_eq!(self.destinations.len(), 1);
        *self.destinations.keys().next().expect("one")
    }

    pub(crate) fn connect(&mut self, conn: ConnId) {
        self.fixture.connect(conn);
        self.advance(RUN);
    }

    /// The destination closes or refuses the connection.
    pub(crate) fn close_destination(&mut self, conn: ConnId, cause: CloseCause) {
        self.fixture.close_destination(conn, cause);
        self.advance(RUN);
    }

    pub(crate) fn answer(&mut self, answer: DnsAnswer) {
        self.fixture.answer(answer);
        self.advance(RUN);
    }

    /// The destination sends these bytes, as far as the router accepts them. Returns the number sent.
    pub(crate) fn feed(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let taken = self.fixture.send_from(conn, bytes);
        self.receive_all();
        taken
    }

    /// The destination reads its queued data, and continues reading.
    pub(crate) fn resume(&mut self, conn: ConnId) {
        self.destination(conn).reads = true;
        self.flush(conn);
        self.settle();
        self.advance(RUN);
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.fixture.advance(time);
        self.receive_all();
    }

    /// Closes the client's link.
    pub(crate) fn close_link(&mut self) {
        self.close(LINK, CloseCause::ByPeer);
    }

    /// Whether the client reads from its link.
    pub(crate) fn set_reads(&mut self, reads: bool) {
        self.peers[LINK].reads = reads;
    }

    /// Reads at most this number of queued bytes of the client's link.
    pub(crate) fn read_link(&mut self, most: usize) {
        self.read(LINK, most);
        self.receive_all();
    }
}

/// Bytes that are not all the same.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at).to_le_bytes()[0]).collect()
}
