//! A router, one client's link to it, and destinations controlled by the test.

mod hearing;

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
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use testkit::fixture::{Fixture, RUN};
use testkit::vectors;

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

/// After each act the scheduler has a run, so that all is heard that is said.
pub(crate) struct World {
    fixture: Fixture<ChaCha8Rng>,
    /// The latest CREATED2.
    created: Option<Vec<u8>>,
    pub(crate) circuits: BTreeMap<CircId, Circuit>,
}

impl Deref for World {
    type Target = Fixture<ChaCha8Rng>;

    fn deref(&self) -> &Self::Target {
        &self.fixture
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fixture
    }
}

/// The client's link.
const LINK: usize = 0;

/// A relay that lets everything out.
pub(crate) fn exit() -> RouterConfig {
    let policy = ExitPolicy::accept_all();
    let exit = Some(ExitConfig { policy, ipv6: true, allows_single_hop: false });
    let directory = Some(SocketAddr::from(([127, 0, 0, 1], 9030)));
    RouterConfig { exit, directory, ..middle() }
}

/// A relay that lets nothing out.
pub(crate) fn middle() -> RouterConfig {
    vectors::PARTIES.config()
}

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

impl World {
    /// The client's link comes from another relay, unless the client `is_alone`; one circuit is open.
    pub(crate) fn new(config: RouterConfig, is_alone: bool) -> Self {
        let rng = ChaCha8Rng::from_seed([1; 32]);
        let fixture = Fixture::new(vectors::PARTIES.clone(), config, rng);
        let mut world = Self { fixture, created: None, circuits: BTreeMap::new() };
        let authentication = match is_alone {
            true => Authentication::Anonymous,
            false => Authentication::AsRelay(Arc::clone(&vectors::PARTIES.other)),
        };
        assert_eq!(world.dial(Some(authentication), [7; 32]), LINK);
        world.exchange();
        assert!(world.ends[LINK].is_open());
        world.create(CIRCUIT);
        world
    }

    pub(crate) fn exit() -> Self {
        Self::new(exit(), false)
    }

    /// The router hears what the client's end of the link has to say, and what it says to that is heard.
    pub(crate) fn exchange(&mut self) {
        self.fixture.exchange(LINK);
        self.pass(RUN);
    }

    /// Sends a cell of any kind; nothing is answered yet.
    pub(crate) fn queue(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        self.fixture.queue(LINK, circ_id, command, body);
    }

    pub(crate) fn create(&mut self, circ_id: CircId) {
        self.queue(circ_id, Command::CREATE_FAST, &[3; 20]);
        self.exchange();
    }

    /// A circuit by ntor of version 3, with congestion control.
    pub(crate) fn create_with_congestion_control(&mut self, circ_id: CircId) {
        let (client, body) = vectors::PARTIES.ask_for_congestion_control();
        self.queue(circ_id, Command::CREATE2, &body);
        self.exchange();
        let created = self.created.take().expect("answered");
        let (_, keys) = client.finish(&created, RelayFormat::V0).expect("honest");
        self.add_circuit(circ_id, keys.tor1().expect("nothing else was asked for"));
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

    /// For a message that must be sent in RELAY_EARLY.
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

    /// An open stream, and its connection.
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

    /// The only connection that was dialled.
    #[track_caller]
    pub(crate) fn dialled(&self) -> ConnId {
        assert_eq!(self.destinations.len(), 1);
        *self.destinations.keys().next().expect("one")
    }

    pub(crate) fn connect(&mut self, conn: ConnId) {
        self.fixture.connect(conn);
        self.pass(RUN);
    }

    /// The destination closes, or could not be connected to.
    pub(crate) fn lose(&mut self, conn: ConnId, cause: CloseCause) {
        self.fixture.lose(conn, cause);
        self.pass(RUN);
    }

    pub(crate) fn answer(&mut self, answer: DnsAnswer) {
        self.fixture.answer(answer);
        self.pass(RUN);
    }

    /// The destination sends as much of this as is taken from it; returns how much.
    pub(crate) fn feed(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let taken = self.fixture.send(conn, bytes);
        self.hear_all();
        taken
    }

    /// The destination reads its queued data.
    pub(crate) fn release(&mut self, conn: ConnId) {
        self.destination(conn).reads = true;
        self.flush(conn);
        self.settle();
        self.pass(RUN);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.fixture.pass(time);
        self.hear_all();
    }

    /// The client's link goes.
    pub(crate) fn hang_up(&mut self) {
        self.close(LINK, CloseCause::ByPeer);
    }

    /// The client reads what its link brings, or does not.
    pub(crate) fn set_reads(&mut self, reads: bool) {
        self.ends[LINK].reads = reads;
    }

    /// Reads at most this number of queued bytes of the client's link.
    pub(crate) fn read_link(&mut self, most: usize) {
        self.read(LINK, most);
        self.hear_all();
    }
}

/// Bytes that are not all the same.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at).to_le_bytes()[0]).collect()
}
