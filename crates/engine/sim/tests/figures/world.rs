//! Relays that are all exits, clients, and a destination, over modelled paths.

use flashflow_sim::wire::{Ended, NodeId, PathModel, Wire, WireConfig};
use onion::circuit::NextHop;
use onion::client::{CircuitNumber, CircuitPlan, Client, Server, StreamNumber, Transfer};
use onion::identity::OwnIdentity;
use onion::link::TlsSession;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::vectors;

pub(crate) type Relay = Router<ChaCha8Rng>;
pub(crate) type Stock = Client<ChaCha8Rng>;

/// Longer than any circuit takes to build.
const SOON: Duration = Duration::from_secs(30);

/// More than any run transfers.
const ENDLESS_BYTES: u64 = 1 << 40;

/// A connection's kernel buffer: Linux' size at the rates of these worlds.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// A port that exits reject: a BEGIN to it measures the circuit's round trip.
const REFUSED: ([u8; 4], u16) = ([10, 0, 0, 1], 1);

pub(crate) struct World {
    pub(crate) wire: Wire,
    pub(crate) relays: Vec<NodeId>,
    hops: Vec<NextHop>,
    server: NodeId,
    server_at: SocketAddr,
    clients: u64,
}

fn identities() -> [(OwnIdentity, Vec<u8>); 3] {
    let tls = vectors::own_tls();
    let certificate = tls.peer_certificate().expect("ours").to_vec();
    [
        (vectors::identity_link(), certificate.clone()),
        vectors::identity_middle(),
        (vectors::identity_landing(), certificate),
    ]
}

fn unix_time_s() -> u64 {
    vectors::link_to_relay().u64("unix_time_s")
}

impl World {
    /// This number of relays, at most three, with all paths as in the model. `change` gets the index of the
    /// relay whose configuration it may change.
    pub(crate) fn new(
        relays: usize,
        model: PathModel,
        change: impl Fn(usize, &mut RouterConfig),
    ) -> Self {
        let config = WireConfig { send_buffer_bytes: SEND_BUFFER_BYTES, ..WireConfig::default() };
        let mut wire = Wire::new(config);
        wire.set_all_paths(model);
        let server = wire.add(Server::new());
        let server_at = SocketAddr::from(([10, 0, 0, 1], 80));
        wire.listen_plain(server, server_at).expect("free");
        let mut world =
            Self { wire, relays: Vec::new(), hops: Vec::new(), server, server_at, clients: 0 };
        for (place, (identity, certificate)) in identities().into_iter().enumerate().take(relays) {
            let mut config = RouterConfig::new(Arc::new(identity), unix_time_s());
            let rules = ["reject *:1", "accept *:*"].map(|rule| rule.parse().expect("a rule"));
            let policy = ExitPolicy::new(rules.into());
            config.exit = Some(ExitConfig { policy, ..ExitConfig::default() });
            change(place, &mut config);
            world.add_relay(place, config, &certificate);
        }
        world
    }

    fn add_relay(&mut self, place: usize, config: RouterConfig, certificate: &[u8]) {
        let octet = u8::try_from(place).expect("three at most");
        let at = SocketAddr::from(([10, 1, 0, octet], 9001));
        self.hops.push(NextHop::to_own(&config.identity, at));
        let rng = ChaCha8Rng::seed_from_u64(place as u64);
        let node = self.wire.add(Router::new(config, rng, Instant::ORIGIN));
        self.wire.listen(node, at, certificate).expect("free");
        self.relays.push(node);
    }

    pub(crate) fn add_client(&mut self) -> NodeId {
        self.clients += 1;
        let rng = ChaCha8Rng::seed_from_u64(1000 + self.clients);
        self.wire.add(Client::new(unix_time_s(), rng))
    }

    pub(crate) fn client(&mut self, id: NodeId) -> &mut Stock {
        self.wire.node_mut(id).expect("a client")
    }

    pub(crate) fn relay(&self, place: usize) -> &Relay {
        self.wire.node(self.relays[place]).expect("a relay")
    }

    pub(crate) fn server(&self) -> &Server {
        self.wire.node(self.server).expect("the server")
    }

    /// A path through all relays.
    pub(crate) fn path(&self) -> CircuitPlan {
        CircuitPlan::new(self.hops.clone())
    }

    /// A circuit that is being built.
    pub(crate) fn open(&mut self, client: NodeId, path: &CircuitPlan) -> CircuitNumber {
        let now = self.wire.now();
        self.client(client).open(now, path)
    }

    /// Lets time pass until these circuits are open.
    #[track_caller]
    pub(crate) fn build(&mut self, circuits: &[(NodeId, CircuitNumber)]) {
        let are_built = |wire: &mut Wire| {
            let is_built = |(client, circuit): &(NodeId, CircuitNumber)| {
                wire.node::<Stock>(*client).is_some_and(|node| node.is_built(*circuit))
            };
            circuits.iter().all(is_built)
        };
        let deadline = self.wire.now() + SOON;
        assert_eq!(self.wire.run_until(deadline, are_built), Ok(Ended::Satisfied));
    }

    pub(crate) fn begin(
        &mut self,
        client: NodeId,
        circuit: CircuitNumber,
        transfer: Transfer,
    ) -> StreamNumber {
        let (now, to) = (self.wire.now(), self.server_at);
        self.client(client).begin(now, circuit, to.into(), transfer)
    }

    /// An unlimited download.
    pub(crate) fn download(&mut self, client: NodeId, circuit: CircuitNumber) -> StreamNumber {
        self.begin(client, circuit, Transfer::download(1, ENDLESS_BYTES))
    }

    /// An unlimited upload.
    pub(crate) fn upload(&mut self, client: NodeId, circuit: CircuitNumber) -> StreamNumber {
        self.begin(client, circuit, Transfer::upload(1, ENDLESS_BYTES))
    }

    /// The round-trip time of a circuit, by a BEGIN that its exit rejects.
    #[track_caller]
    pub(crate) fn round_trip(&mut self, client: NodeId, circuit: CircuitNumber) -> Duration {
        let begun_at = self.wire.now();
        let to = SocketAddr::from(REFUSED).into();
        let stream = self.client(client).begin(begun_at, circuit, to, Transfer::download(0, 0));
        let is_over = |wire: &mut Wire| {
            wire.node::<Stock>(client).is_some_and(|node| node.figures(stream).is_none())
        };
        let deadline = begun_at + SOON;
        assert_eq!(self.wire.run_until(deadline, is_over), Ok(Ended::Satisfied));
        self.wire.now() - begun_at
    }

    /// Bytes received on an open stream.
    #[track_caller]
    pub(crate) fn received_bytes(&mut self, client: NodeId, stream: StreamNumber) -> u64 {
        self.client(client).figures(stream).expect("it is open").received_bytes
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let deadline = self.wire.now() + time;
        // It is idle earlier only if nothing happens until then.
        self.wire.run_until(deadline, |_| false).expect("no node spins");
    }
}
