//! Several relays, a client and a destination, on either stage.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::identities::UNIX_TIME_S;
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, RealSockets, Stage, VirtualTime};
use link::{DriverOptions, IdentityIssuer};
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Figures, Loss, Outcome, Server,
    StreamNumber, Transfer,
};
use onion::identity::OwnIdentity;
use onion::measure::load::Target;
use onion::node::Node;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use onion::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// Longer than any step that is not slow on purpose.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Identities, made once per process: their RSA keys take time.
pub(crate) struct Identities {
    pub(crate) issuer: IdentityIssuer,
    pub(crate) relays: Vec<Arc<OwnIdentity>>,
}

pub(crate) fn identities() -> &'static Identities {
    static IDENTITIES: OnceLock<Identities> = OnceLock::new();
    IDENTITIES.get_or_init(|| {
        let mut issuer = IdentityIssuer::new([3; 32], UNIX_TIME_S).unwrap();
        let relays = (0..4).map(|_| Arc::new(issuer.identity().unwrap())).collect();
        Identities { issuer, relays }
    })
}

pub(crate) type Relay = Router<ChaCha8Rng>;
pub(crate) type TorClient = Client<ChaCha8Rng>;

/// A stage with destinations.
pub(crate) trait World: Stage {
    /// Adds a node that listens without TLS.
    fn add_plain(&mut self, node: impl Node + 'static, at: SocketAddr) -> NodeHandle;
}

impl World for VirtualTime {
    fn add_plain(&mut self, node: impl Node + 'static, at: SocketAddr) -> NodeHandle {
        let id = self.wire.add(node);
        self.wire.listen_plain(id, at).unwrap();
        self.nodes.push(id);
        NodeHandle(self.nodes.len() - 1)
    }
}

impl World for RealSockets {
    fn add_plain(&mut self, node: impl Node + 'static, at: SocketAddr) -> NodeHandle {
        let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
        self.add_with(node, &identities().issuer, &[at], options)
    }
}

/// Three relays that are exits and directories, a client, and a destination.
pub(crate) struct Net<S> {
    pub(crate) stage: S,
    pub(crate) relays: Vec<NodeHandle>,
    pub(crate) hops: Vec<NextHop>,
    pub(crate) client: NodeHandle,
    pub(crate) server: NodeHandle,
    pub(crate) server_at: SocketAddr,
    events: VecDeque<ClientEvent>,
    seed: u64,
}

impl<S: World> Net<S> {
    pub(crate) fn new(stage: S) -> Self {
        Self::with(stage, |_, _| ())
    }

    /// With other configurations for the relays, by index.
    pub(crate) fn with(mut stage: S, change: impl Fn(usize, &mut RouterConfig)) -> Self {
        let server_at = stage.reserve();
        let (mut relays, mut hops) = (Vec::new(), Vec::new());
        for place in 0..3 {
            let identity = Arc::clone(&identities().relays[place]);
            let at = stage.reserve();
            hops.push(NextHop::to_own(&identity, at));
            let mut config = RouterConfig::new(identity, UNIX_TIME_S);
            let policy = ["reject *:1", "accept *:*"].map(|rule| rule.parse().unwrap());
            config.exit = Some(ExitConfig {
                policy: ExitPolicy::new(policy.into()),
                ..ExitConfig::default()
            });
            config.directory = Some(server_at);
            change(place, &mut config);
            let router = Router::new(config, ChaCha8Rng::seed_from_u64(place as u64), stage.now());
            relays.push(stage.add(router, &identities().issuer, &[at]));
        }
        let server = stage.add_plain(Server::new(), server_at);
        let client = Client::new(UNIX_TIME_S, ChaCha8Rng::seed_from_u64(100));
        let client = stage.add(client, &identities().issuer, &[]);
        Self { stage, relays, hops, client, server, server_at, events: VecDeque::new(), seed: 0 }
    }

    /// Another client, whose events are ignored.
    pub(crate) fn add_client(&mut self) -> NodeHandle {
        self.seed += 1;
        let rng = ChaCha8Rng::seed_from_u64(100 + self.seed);
        self.stage.add(Client::new(UNIX_TIME_S, rng), &identities().issuer, &[])
    }

    /// Another client's transfer with the server, on a new circuit through all relays.
    pub(crate) fn begin_from(&mut self, client: NodeHandle, transfer: Transfer) -> StreamNumber {
        let (now, path, to) = (self.stage.now(), self.path(3), self.server_at);
        let client: &mut TorClient = self.stage.node(client);
        let circuit = client.open(now, &path);
        client.begin(now, circuit, to.into(), transfer)
    }

    /// A peer that sends arbitrary cells to a relay.
    pub(crate) fn add_peer(&mut self, relay: usize) -> NodeHandle {
        let NextHop { address, ids, .. } = self.hops[relay];
        let peer = Peer::dialling(Target { address, ids }, UNIX_TIME_S);
        let peer = self.stage.add(peer, &identities().issuer, &[]);
        self.stage.until(SOON, |stage| stage.node::<Peer>(peer).is_open());
        peer
    }

    pub(crate) fn client(&mut self) -> &mut TorClient {
        self.stage.node(self.client)
    }

    pub(crate) fn relay(&mut self, place: usize) -> &mut Relay {
        self.stage.node(self.relays[place])
    }

    pub(crate) fn server(&mut self) -> &mut Server {
        self.stage.node(self.server)
    }

    /// A path through the first relays.
    pub(crate) fn path(&self, hops: usize) -> CircuitPlan {
        CircuitPlan::new(self.hops[..hops].to_vec())
    }

    pub(crate) fn open(&mut self, path: &CircuitPlan) -> CircuitNumber {
        let now = self.stage.now();
        self.client().open(now, path)
    }

    /// Opens a circuit and waits until it is built.
    #[track_caller]
    pub(crate) fn built(&mut self, path: &CircuitPlan) -> CircuitNumber {
        let circuit = self.open(path);
        let event = self.event(|event| {
            matches!(event, ClientEvent::Built { circuit: reported, .. } | ClientEvent::Lost { circuit: reported, .. } if *reported == circuit)
        });
        assert!(matches!(event, ClientEvent::Built { .. }), "{event:?}");
        circuit
    }

    /// Builds a circuit through all three relays, with or without congestion control.
    #[track_caller]
    pub(crate) fn circuit(&mut self, has_congestion_control: bool) -> CircuitNumber {
        let path = CircuitPlan { has_congestion_control, ..self.path(3) };
        self.built(&path)
    }

    /// Begins a transfer with the server.
    pub(crate) fn begin(&mut self, circuit: CircuitNumber, transfer: Transfer) -> StreamNumber {
        let to = Destination::from(self.server_at);
        self.begin_to(circuit, to, transfer)
    }

    pub(crate) fn begin_to(
        &mut self,
        circuit: CircuitNumber,
        to: Destination,
        transfer: Transfer,
    ) -> StreamNumber {
        let now = self.stage.now();
        self.client().begin(now, circuit, to, transfer)
    }

    /// The outcome of a stream.
    #[track_caller]
    pub(crate) fn over(&mut self, stream: StreamNumber) -> (Outcome, Figures) {
        let is_it = |event: &ClientEvent| match event {
            ClientEvent::Over { stream: ended, .. } => *ended == stream,
            ClientEvent::Lost { .. } => true,
            _ => false,
        };
        match self.event(is_it) {
            ClientEvent::Over { outcome, figures, .. } => (outcome, figures),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a transfer, which must complete.
    #[track_caller]
    pub(crate) fn complete(&mut self, stream: StreamNumber) -> Figures {
        let (outcome, figures) = self.over(stream);
        assert_eq!(outcome, Outcome::Complete, "{figures:?}");
        figures
    }

    /// A transfer with the server, which must complete.
    #[track_caller]
    pub(crate) fn transfer(&mut self, circuit: CircuitNumber, transfer: Transfer) -> Figures {
        let stream = self.begin(circuit, transfer);
        self.complete(stream)
    }

    /// Waits until a circuit is lost, and returns the cause.
    #[track_caller]
    pub(crate) fn lost(&mut self, circuit: CircuitNumber) -> Loss {
        let is_it = |event: &ClientEvent| match event {
            ClientEvent::Lost { circuit: lost, .. } => *lost == circuit,
            ClientEvent::Built { circuit: built, .. } => *built == circuit,
            _ => false,
        };
        match self.event(is_it) {
            ClientEvent::Lost { cause, .. } => cause,
            other => panic!("{other:?}"),
        }
    }

    /// The next event that matches.
    #[track_caller]
    fn event(&mut self, is_it: impl Fn(&ClientEvent) -> bool) -> ClientEvent {
        let deadline = self.stage.now() + SOON;
        loop {
            while let Some(event) = self.client().poll_event() {
                self.events.push_back(event);
            }
            if let Some(place) = self.events.iter().position(&is_it) {
                return self.events.remove(place).unwrap();
            }
            assert!(self.stage.now() < deadline && self.stage.step(), "{:?}", self.events);
        }
    }

    /// The round-trip time of a circuit, by a BEGIN that its exit rejects.
    #[track_caller]
    pub(crate) fn round_trip(&mut self, circuit: CircuitNumber) -> Duration {
        let refused = SocketAddr::from(([10, 0, 0, 1], 1));
        let stream = self.begin_to(circuit, refused.into(), Transfer::download(0, 0));
        let (outcome, figures) = self.over(stream);
        assert_eq!(outcome, Outcome::Ended(onion::cell::msg::EndReason::EXIT_POLICY));
        figures.to_last()
    }

    #[track_caller]
    pub(crate) fn until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.stage.now() + SOON;
        while !is_done(self) {
            assert!(
                self.stage.now() < deadline && self.stage.step(),
                "the condition is not met in time"
            );
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until: Instant = self.stage.now() + time;
        while self.stage.now() < until && self.stage.step() {}
    }

    /// No circuits, streams and buffered bytes are left, and at most the links of one path.
    #[track_caller]
    pub(crate) fn assert_empty(&mut self) {
        self.assert_idle();
        if let Some(conns) = self.stage.conns() {
            // Links between relays and those of the client may remain open.
            assert!(conns as u64 <= 3 + self.seed, "{conns} connections");
        }
    }

    /// No circuits, streams and buffered bytes are left.
    #[track_caller]
    pub(crate) fn assert_idle(&mut self) {
        self.until(|net| {
            (0..3).all(|place| {
                let relay = net.relay(place);
                (relay.open_circuits(), relay.open_streams(), relay.queued_bytes()) == (0, 0, 0)
            }) && net.server().open_conns() == 0
                && net.client().open_circuits() == 0
                && net.client().open_streams() == 0
        });
    }
}
