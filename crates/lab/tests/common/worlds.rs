//! One measurement of one test relay, in either world: virtual time or real sockets.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::found::Found;
use lab::peer::{Behaviour, Lie, Peer};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Forge, NodeThread};
use onion::identity::{OwnIdentity, RelayIds};
use onion::measure::Second;
use onion::measure::pump::{Event, Landing, Pace, Pump, PumpConfig, PumpFailure, Target, WayBack};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sim::wire::{Ended, NodeId, Wire, WireConfig};
use std::net::{SocketAddr, TcpListener};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, OnceLock};

/// The date of all certificates.
const UNIX_TIME_S: u64 = 1_700_000_000;

/// Landings of the measurer.
const LANDINGS: usize = 2;

/// Identities, made once per process: their RSA keys take time.
pub(crate) struct Cast {
    measurers: Forge,
    relays: Forge,
    landings: Vec<Arc<OwnIdentity>>,
    relay: Arc<OwnIdentity>,
    pub(crate) impostor: Arc<OwnIdentity>,
}

pub(crate) fn cast() -> &'static Cast {
    static CAST: OnceLock<Cast> = OnceLock::new();
    CAST.get_or_init(|| {
        let mut measurers = Forge::new([1; 32], UNIX_TIME_S).unwrap();
        let mut relays = Forge::new([2; 32], UNIX_TIME_S).unwrap();
        let landings = (0..LANDINGS).map(|_| Arc::new(measurers.identity().unwrap())).collect();
        let relay = Arc::new(relays.identity().unwrap());
        let impostor = Arc::new(relays.identity().unwrap());
        Cast { measurers, relays, landings, relay, impostor }
    })
}

/// A measurement to be made.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) behaviour: Behaviour,
    pub(crate) sockets: u32,
    pub(crate) circuits_per_socket: u32,
    pub(crate) seconds: u32,
    pub(crate) rate: Rate,
    pub(crate) check_one_in: u32,
    pub(crate) setup_timeout: Duration,
    /// Decides all random choices of both sides in virtual time.
    pub(crate) seed: u64,
    /// In virtual time: what the relay can send.
    pub(crate) capacity: Option<Rate>,
    /// In virtual time: the longest piece of a stream.
    pub(crate) piece_max_bytes: Option<usize>,
}

impl Scenario {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            sockets: 2,
            circuits_per_socket: 2,
            seconds: 2,
            rate: Rate::from_mbit_per_s(20.0),
            check_one_in: 125,
            setup_timeout: Duration::from_secs(8),
            seed: 1,
            capacity: None,
            piece_max_bytes: None,
        }
    }

    /// With one circuit, where a cell's place on it is its place in the measurement.
    pub(crate) fn on_one_circuit(behaviour: Behaviour) -> Self {
        Self { sockets: 1, circuits_per_socket: 1, ..Self::new(behaviour) }
    }

    fn config(&self, target: SocketAddr, landings: &[SocketAddr]) -> PumpConfig {
        let cast = cast();
        let relay = &cast.relay;
        let ids = RelayIds { rsa: relay.rsa, ed25519: Some(relay.ed25519) };
        let own = cast.landings.iter().zip(landings).map(|(identity, address)| Landing {
            identity: Arc::clone(identity),
            address: *address,
        });
        PumpConfig {
            held_back: None,
            target: Target { address: target, ids },
            way_back: WayBack::Transit { landings: own.collect(), authenticate_as: Vec::new() },
            sockets: self.sockets,
            circuits_per_socket: self.circuits_per_socket,
            pace: Pace { burst: 10, per_s: NonZeroU32::new(100).unwrap() },
            seconds: self.seconds,
            rate: self.rate,
            window_cap_cells: 1000,
            check_one_in: NonZeroU32::new(self.check_one_in).unwrap(),
            setup_timeout: self.setup_timeout,
            stall_timeout: Duration::from_millis(1500),
            unix_time_s: UNIX_TIME_S,
        }
    }

    fn pump(&self, config: PumpConfig, now: Instant) -> Pump<ChaCha8Rng> {
        Pump::new(config, ChaCha8Rng::seed_from_u64(self.seed), now)
    }

    fn peer(&self) -> Peer<ChaCha8Rng> {
        let rng = ChaCha8Rng::seed_from_u64(!self.seed);
        Peer::new(Arc::clone(&cast().relay), self.behaviour.clone(), UNIX_TIME_S, rng)
    }
}

/// What came of a measurement.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    /// Sockets and circuits, if it came so far.
    pub(crate) ready: Option<(u32, u32)>,
    pub(crate) seconds: Vec<Second>,
    /// How it ended.
    pub(crate) result: Result<(), PumpFailure>,
    /// What the relay did; in virtual time only.
    pub(crate) lies: Vec<Lie>,
    /// All that was delivered; in virtual time only.
    pub(crate) fingerprint: u64,
}

impl Report {
    /// The failure, of which there must be one.
    #[track_caller]
    pub(crate) fn failure(&self) -> &PumpFailure {
        self.result.as_ref().expect_err("it is found out")
    }

    fn of(found: Found) -> Self {
        let Found { ready, seconds, result } = found;
        let result = result.expect("it is over");
        Self { ready, seconds, result, lies: Vec::new(), fingerprint: 0 }
    }
}

/// Where a scenario can be played.
pub(crate) trait World {
    fn play(&self, scenario: &Scenario) -> Report;
}

/// `sim::wire`.
pub(crate) struct VirtualTime;

impl World for VirtualTime {
    fn play(&self, scenario: &Scenario) -> Report {
        let target = SocketAddr::from(([10, 0, 0, 1], 9001));
        let landings: Vec<SocketAddr> =
            (1..).take(LANDINGS).map(|port| SocketAddr::from(([10, 0, 0, 2], port))).collect();
        let piece_max_bytes = scenario.piece_max_bytes.and_then(NonZeroUsize::new);
        let config = WireConfig { piece_max_bytes, seed: scenario.seed, ..WireConfig::default() };
        let mut wire = Wire::new(config);
        let certificate = |forge: &Forge| forge.tls_credentials().unwrap().0[0].to_vec();
        let relay = wire.add(scenario.peer());
        wire.listen(relay, target, &certificate(&cast().relays)).unwrap();
        if let Some(rate) = scenario.capacity {
            wire.set_egress(relay, rate);
        }
        let pump = scenario.pump(scenario.config(target, &landings), wire.now());
        let measurer = wire.add(pump);
        for address in landings {
            wire.listen(measurer, address, &certificate(&cast().measurers)).unwrap();
        }
        let mut found = Found::default();
        let end = Instant::ORIGIN + Duration::from_secs(60);
        let ended = wire.run_until(end, |wire| drain_events(wire, measurer, &mut found));
        assert_eq!(ended, Ok(Ended::Satisfied), "no end: {found:?}");
        let mut report = Report::of(found);
        report.fingerprint = wire.fingerprint();
        // All connections get closed, and then nothing is left to happen.
        wire.drive_bounded(10_000).expect("comes to rest");
        if !matches!(scenario.behaviour, Behaviour::Stalls(_)) {
            assert_eq!(wire.conns_len(), 0, "connections are left");
        }
        let peer: &Peer<ChaCha8Rng> = wire.node(relay).unwrap();
        report.lies = peer.lies().to_vec();
        report
    }
}

/// Takes what the measurer has to tell, and starts it when it is ready; true at the end.
fn drain_events(wire: &mut Wire, measurer: NodeId, found: &mut Found) -> bool {
    let now = wire.now();
    let pump: &mut Pump<ChaCha8Rng> = wire.node_mut(measurer).unwrap();
    while let Some(event) = pump.poll_event() {
        let is_ready = matches!(event, Event::Ready { .. });
        found.gather(event);
        if is_ready {
            pump.start(now, now + Duration::from_millis(100));
        }
    }
    found.result.is_some()
}

/// `link::Driver` on the loopback interface, the relay on a thread of its own.
pub(crate) struct RealSockets;

impl World for RealSockets {
    fn play(&self, scenario: &Scenario) -> Report {
        let clock = Clock::start();
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = bind();
        let target = listener.local_addr().unwrap();
        let tls = TlsConfigs::new(&cast().relays).unwrap();
        let options = DriverOptions::default();
        let relay = Driver::new(scenario.peer(), clock, tls, vec![listener], options).unwrap();
        let relay = NodeThread::start("relay", Box::new(relay), ()).unwrap();

        let listeners: Vec<TcpListener> = (0..LANDINGS).map(|_| bind()).collect();
        let landings: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let pump = scenario.pump(scenario.config(target, &landings), clock.now());
        let tls = TlsConfigs::new(&cast().measurers).unwrap();
        let mut measurer = Driver::new(pump, clock, tls, listeners, options).unwrap();
        let mut found = Found::default();
        let longest = Duration::from_secs(20 + u64::from(scenario.seconds));
        let deadline = clock.now() + longest;
        loop {
            assert!(clock.now() < deadline, "no end: {found:?}");
            measurer.turn(deadline).unwrap();
            while let Some(event) = measurer.node_mut().poll_event() {
                let is_ready = matches!(event, Event::Ready { .. });
                found.gather(event);
                if is_ready {
                    let now = measurer.now();
                    measurer.node_mut().start(now, now);
                }
            }
            if found.result.is_some() {
                relay.join().expect("the relay does not panic");
                return Report::of(found);
            }
        }
    }
}

/// The measurer alone, before anything has happened, with the certificate that it shows and the
/// identity of its first landing.
pub(crate) fn lone_measurer() -> (Pump<ChaCha8Rng>, Vec<u8>, RelayIds) {
    let scenario = Scenario::new(Behaviour::Honest);
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = scenario.config(address, &[address; LANDINGS]);
    let certificate = cast().measurers.tls_credentials().unwrap().0[0].to_vec();
    let landing = &cast().landings[0];
    let ids = RelayIds { rsa: landing.rsa, ed25519: Some(landing.ed25519) };
    (scenario.pump(config, Instant::ORIGIN), certificate, ids)
}

/// The date of all certificates, for those who check them.
pub(crate) const fn unix_time_s() -> u64 {
    UNIX_TIME_S
}
