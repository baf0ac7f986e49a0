//! One transit measurement of a relay, in virtual time or on real sockets.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::measurer_result::MeasurerResult;
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, Stage, VirtualTime};
use crate::common::stranger::Stranger;
use lab::liars::{LiedAt, TransitLiar, TransitLie};
use onion::identity::RelayIds;
use onion::measure::Second;
use onion::measure::load::{
    Event, HeldBack, LoadConfig, LoadFailure, LoadGenerator, Pace, ReturnPath, ReturnRelay, Target,
};
use onion::node::Node as _;
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Return relays of the measurer.
const LANDINGS: usize = 2;

/// The peer at the target's address.
#[derive(Clone, Copy)]
pub(crate) enum Relay {
    Honest,
    Lying(TransitLie),
    /// Proves another identity than the expected one: an impostor, or a wrong address.
    Impostor,
    /// Accepts the connection and TLS, and sends nothing.
    Mute,
}

impl From<TransitLie> for Relay {
    fn from(lie: TransitLie) -> Self {
        Self::Lying(lie)
    }
}

/// The parameters of a measurement.
pub(crate) struct Scenario {
    pub(crate) relay: Relay,
    pub(crate) sockets: u32,
    pub(crate) circuits_per_socket: u32,
    pub(crate) seconds: u32,
    pub(crate) rate: Rate,
    pub(crate) check_one_in: u32,
    pub(crate) setup_timeout: Duration,
    pub(crate) second_tries: u32,
    /// Every other socket is held back for this time; the first of an odd number of sockets, too.
    pub(crate) held_back: Option<Duration>,
    /// Circuits to the first return relay that a stranger requests from the relay meanwhile.
    pub(crate) strangers_circuits: u32,
    /// The seed of all random choices of both sides in virtual time.
    pub(crate) seed: u64,
    /// In virtual time: the relay's capacity.
    pub(crate) capacity: Option<Rate>,
    /// In virtual time: the maximum segment length of streams.
    pub(crate) piece_max_bytes: Option<usize>,
}

impl Scenario {
    pub(crate) fn new(relay: impl Into<Relay>) -> Self {
        Self {
            relay: relay.into(),
            sockets: 2,
            circuits_per_socket: 2,
            seconds: 2,
            rate: Rate::from_mbit_per_s(20.0),
            check_one_in: 125,
            setup_timeout: Duration::from_secs(8),
            second_tries: 4,
            held_back: None,
            strangers_circuits: 0,
            seed: 1,
            capacity: None,
            piece_max_bytes: None,
        }
    }

    /// With one circuit, where a cell's index on it is its index in the measurement.
    pub(crate) fn on_one_circuit(relay: impl Into<Relay>) -> Self {
        Self { sockets: 1, circuits_per_socket: 1, ..Self::new(relay) }
    }

    fn config(&self, target: SocketAddr, landings: &[SocketAddr]) -> LoadConfig {
        let identities = identities();
        let ids = identities.relay.ids();
        let own = identities.landings.iter().zip(landings).map(|(identity, address)| ReturnRelay {
            identity: Arc::clone(identity),
            address: *address,
        });
        LoadConfig {
            few_circuits: None,
            held_back: self
                .held_back
                .map(|after| HeldBack { after, sockets_before: self.sockets % 2 }),
            target: Target { address: target, ids },
            return_path: ReturnPath::Transit {
                landings: own.collect(),
                authenticate_as: Vec::new(),
            },
            sockets: self.sockets,
            circuits_per_socket: self.circuits_per_socket,
            pace: Pace { burst: 10, per_s: NonZeroU32::new(100).unwrap() },
            second_tries: self.second_tries,
            seconds: self.seconds,
            rate: self.rate,
            window_cap_cells: 1000,
            check_one_in: NonZeroU32::new(self.check_one_in).unwrap(),
            setup_timeout: self.setup_timeout,
            stall_timeout: Duration::from_millis(2000),
            unix_time_s: UNIX_TIME_S,
        }
    }

    fn generator(&self, config: LoadConfig, now: Instant) -> LoadGenerator<ChaCha8Rng> {
        LoadGenerator::new(config, ChaCha8Rng::seed_from_u64(self.seed), now)
    }

    fn router(&self, now: Instant) -> Router<ChaCha8Rng, TransitLiar> {
        let (identity, lie) = match self.relay {
            Relay::Honest | Relay::Mute => (&identities().relay, None),
            Relay::Lying(lie) => (&identities().relay, Some(lie)),
            Relay::Impostor => (&identities().impostor, None),
        };
        let config = RouterConfig::new(Arc::clone(identity), UNIX_TIME_S);
        let rng = ChaCha8Rng::seed_from_u64(!self.seed);
        Router::with_behavior(config, TransitLiar::new(lie), rng, now)
    }

    /// Measures the relay on this stage.
    pub(crate) fn run_on<S: Stage>(&self, stage: S) -> Report {
        let mut run = Run::begin(stage, self);
        run.measure();
        run.end()
    }

    /// Measures in virtual time, with a fingerprint of everything delivered.
    pub(crate) fn run(&self) -> Report {
        let mut run = Run::begin(VirtualTime::new(self.seed, self.piece_max_bytes), self);
        let stage = &mut run.stage;
        if let Some(rate) = self.capacity {
            stage.wire.set_egress(stage.nodes[run.relay.0], rate);
        }
        run.measure();
        let fingerprint = run.stage.wire.fingerprint();
        Report { fingerprint, ..run.end() }
    }
}

/// A running measurement.
struct Run<'s, S> {
    stage: S,
    scenario: &'s Scenario,
    relay: NodeHandle,
    measurer: NodeHandle,
    stranger: Stranger,
    found: MeasurerResult,
    answered_after: Option<Duration>,
}

impl<'s, S: Stage> Run<'s, S> {
    fn begin(mut stage: S, scenario: &'s Scenario) -> Self {
        let address = stage.reserve();
        let landings: Vec<SocketAddr> = (0..LANDINGS).map(|_| stage.reserve()).collect();
        let (now, issuer) = (stage.now(), &identities().relays);
        let relay = match scenario.relay {
            Relay::Mute => stage.add(Peer::mute(UNIX_TIME_S), issuer, &[address]),
            _ => stage.add(scenario.router(now), issuer, &[address]),
        };
        let config = scenario.config(address, &landings);
        let target = config.target;
        let generator = scenario.generator(config, now);
        let measurer = stage.add(generator, &identities().others, &landings);
        let landing = Target { address: landings[0], ids: identities().landings[0].ids() };
        let stranger = Stranger::new(target, landing, scenario.strangers_circuits);
        Self {
            stage,
            scenario,
            relay,
            measurer,
            stranger,
            found: MeasurerResult::default(),
            answered_after: None,
        }
    }

    /// Runs until the measurer is done.
    fn measure(&mut self) {
        let longest = Duration::from_secs(20 + u64::from(self.scenario.seconds));
        let deadline = self.stage.now() + longest;
        while self.found.result.is_none() {
            assert!(self.stage.now() < deadline, "no end: {:?}", self.found);
            assert!(self.stage.step(), "no event is left: {:?}", self.found);
            self.poll_events();
            if let Some(router) = self.router() {
                router.check_accounts();
            }
            if self.found.ready.is_some() {
                self.stranger.step(&mut self.stage, &identities().others, UNIX_TIME_S);
            }
        }
    }

    /// Handles the measurer's events, and starts it when it is ready.
    fn poll_events(&mut self) {
        let now = self.stage.now();
        let generator: &mut LoadGenerator<ChaCha8Rng> = self.stage.node(self.measurer);
        self.answered_after = generator.silence(now).answered_after.or(self.answered_after);
        while let Some(event) = generator.poll_event() {
            let is_ready = matches!(event, Event::Ready { .. });
            self.found.record(event);
            if is_ready {
                generator.start(now, now + Duration::from_millis(100));
            }
        }
    }

    /// The relay, unless it is mute.
    fn router(&mut self) -> Option<&mut Router<ChaCha8Rng, TransitLiar>> {
        let is_mute = matches!(self.scenario.relay, Relay::Mute);
        (!is_mute).then(|| self.stage.node(self.relay))
    }

    /// Waits until all connections are closed and no events are left, and returns the result.
    fn end(mut self) -> Report {
        self.stranger.leave(&mut self.stage);
        if S::IS_EXACT {
            self.stage.until(Duration::from_secs(10), |stage| stage.conns() == Some(0));
            assert_eq!(
                self.stage.node::<LoadGenerator<ChaCha8Rng>>(self.measurer).poll_timeout(),
                None
            );
        }
        let mut lies = Vec::new();
        if let Some(router) = self.router() {
            if S::IS_EXACT {
                assert_eq!((router.open_circuits(), router.queued_bytes()), (0, 0));
                assert_eq!(router.poll_timeout(), None, "no timeout is pending");
            }
            lies = router.behavior().lies().to_vec();
        }
        let MeasurerResult { ready, seconds, result } = self.found;
        let result = result.expect("it has ended");
        let refused_circuits = self.stranger.refused_circuits();
        Report {
            ready,
            seconds,
            result,
            lies,
            refused_circuits,
            answered_after: self.answered_after,
            fingerprint: 0,
        }
    }
}

/// The result of a measurement.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    /// Sockets and circuits, once ready.
    pub(crate) ready: Option<(u32, u32)>,
    pub(crate) seconds: Vec<Second>,
    /// The outcome.
    pub(crate) result: Result<(), LoadFailure>,
    /// The relay's lies.
    pub(crate) lies: Vec<LiedAt>,
    /// Circuits that the return relay has refused to a stranger.
    pub(crate) refused_circuits: u32,
    /// The length of the silence when the relay's host last answered a new connection.
    pub(crate) answered_after: Option<Duration>,
    /// The fingerprint until the measurer was done; in virtual time only.
    pub(crate) fingerprint: u64,
}

impl Report {
    /// The failure; there must be one.
    #[track_caller]
    pub(crate) fn failure(&self) -> &LoadFailure {
        self.result.as_ref().expect_err("it is detected")
    }
}

/// The measurer alone before any event, with its certificate and the identity of its first return relay.
pub(crate) fn lone_measurer() -> (LoadGenerator<ChaCha8Rng>, Vec<u8>, RelayIds) {
    let scenario = Scenario::new(Relay::Honest);
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = scenario.config(address, &[address; LANDINGS]);
    let certificate = identities().others.tls_credentials().unwrap().0[0].to_vec();
    (scenario.generator(config, Instant::ORIGIN), certificate, identities().landings[0].ids())
}
