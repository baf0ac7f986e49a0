use super::{EchoLiar, EchoLie, LiarError};
use link::IdentityIssuer;
use onion::identity::OwnIdentity;
use onion::measure::load::{
    Event, LoadConfig, LoadFailure, LoadGenerator, Pace, ReturnPath, Target,
};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::measure::target::TargetParams;
use onion::node::Node;
use onion::router::{Router, RouterConfig};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sim::wire::{NodeId, Wire, WireConfig, WireError};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

const UNIX_TIME_S: u64 = 1_700_000_000;
const COORDINATOR: [u8; 32] = [0xc0; 32];
const MEASURER: [u8; 32] = [0xa0; 32];

/// Long enough that almost every forger is checked.
const SECONDS: u16 = 20;

/// The measurer's rate: with the seconds, it determines the length of a run in cells.
const RATE: Rate = Rate::from_bit_per_s(10_000_000);

/// Relays that forge answers, each measured once in virtual time, to estimate the probability of escaping
/// detection.
///
/// All randomness comes from the seeds, so the same call gives the same result.
pub struct Forgers {
    identity: Arc<OwnIdentity>,
    certificate: Vec<u8>,
    share: f64,
    check_one_in: NonZeroU32,
}

/// The result of one forger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgerRun {
    /// The number of forged answers that had arrived before one of them was checked.
    pub evaded: usize,
    /// The cell whose check failed; `None` if the measurement ended without.
    pub caught_at: Option<u64>,
    /// Whether that cell was forged: a check must never fail for an honest answer.
    pub is_rightly_accused: bool,
}

impl Forgers {
    /// Relays that forge this share of their answers, with one check per this number of cells. Creates keys, which
    /// takes some tenths of a second.
    ///
    /// # Errors
    /// If keys cannot be created.
    pub fn new(share: f64, check_one_in: NonZeroU32) -> Result<Self, LiarError> {
        let mut issuer = IdentityIssuer::new([5; 32], UNIX_TIME_S)?;
        let identity = Arc::new(issuer.identity()?);
        let (certificates, _) = issuer.tls_credentials()?;
        let certificate =
            certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default();
        Ok(Self { identity, certificate, share, check_one_in })
    }

    /// Measures the forger with this seed until it is detected.
    ///
    /// # Errors
    /// [`LiarError::Simulation`]: the measurement could not begin.
    pub fn run(&self, seed: u64) -> Result<ForgerRun, LiarError> {
        let mut measurement = Measurement::begin(self, seed)?;
        let failure = measurement.run(self, seed)?;
        let router: &mut Router<StdRng, EchoLiar> = measurement.node(measurement.relay)?;
        let lies = router.behavior().lies();
        Ok(match failure {
            Some(LoadFailure::CheckFailed { cell, .. }) => ForgerRun {
                evaded: lies.iter().filter(|lie| **lie < cell).count(),
                caught_at: Some(cell),
                is_rightly_accused: lies.contains(&cell),
            },
            None => ForgerRun { evaded: lies.len(), caught_at: None, is_rightly_accused: false },
            Some(other) => return Err(LiarError::Simulation(other.to_string())),
        })
    }
}

/// A relay, its coordinator and one measurer with one circuit.
struct Measurement {
    wire: Wire,
    relay: NodeId,
    target: Target,
}

fn failed(error: WireError) -> LiarError {
    LiarError::Simulation(error.to_string())
}

impl Measurement {
    fn begin(forgers: &Forgers, seed: u64) -> Result<Self, LiarError> {
        let mut wire = Wire::new(WireConfig { seed, ..WireConfig::default() });
        let target = TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            ..TargetParams::default()
        };
        let config = RouterConfig {
            target,
            ..RouterConfig::new(Arc::clone(&forgers.identity), UNIX_TIME_S)
        };
        let liar = EchoLiar::new(Some(EchoLie::Forges { share: forgers.share }));
        let rng = StdRng::seed_from_u64(2 * seed);
        let relay = wire.add(Router::with_behavior(config, liar, rng, wire.now()));
        let address = SocketAddr::from(([10, 0, 0, 1], 9001));
        wire.listen(relay, address, &forgers.certificate).map_err(failed)?;
        Ok(Self { wire, relay, target: Target { address, ids: forgers.identity.ids() } })
    }

    fn node<N: Node + 'static>(&mut self, id: NodeId) -> Result<&mut N, LiarError> {
        self.wire.node_mut(id).ok_or_else(|| LiarError::Simulation("a node is gone".to_owned()))
    }

    /// Runs until `poll` returns a value.
    fn until<T>(
        &mut self,
        mut poll: impl FnMut(&mut Self) -> Result<Option<T>, LiarError>,
    ) -> Result<T, LiarError> {
        loop {
            if let Some(value) = poll(self)? {
                return Ok(value);
            }
            if !self.wire.step().map_err(failed)? {
                return Err(LiarError::Simulation("no event is left".to_owned()));
            }
        }
    }

    /// Measures; returns the failure, if it fails.
    fn run(&mut self, forgers: &Forgers, seed: u64) -> Result<Option<LoadFailure>, LiarError> {
        let nonce = Nonce([1; 32]);
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: self.target.ids,
            measurers: vec![MeasurerKey::of_seed(&MEASURER)],
            seconds: SECONDS,
            client_share: ClientShare::DEFAULT,
            sockets: 1,
            expires_unix_s: UNIX_TIME_S + 600,
            nonce,
        };
        let config = OrderConfig {
            target: self.target,
            order,
            key_seed: COORDINATOR,
            accept_timeout: Duration::from_secs(8),
            random: [7; 24],
            unix_time_s: UNIX_TIME_S,
        };
        let link = self.wire.add(OrderLink::new(config, self.wire.now()));
        self.until(|measurement| match measurement.node::<OrderLink>(link)?.poll_event() {
            Some(OrderEvent::Accepted) => Ok(Some(())),
            Some(other) => Err(LiarError::Simulation(format!("the order: {other:?}"))),
            None => Ok(None),
        })?;
        let config = LoadConfig {
            held_back: None,
            few_circuits: None,
            target: self.target,
            return_path: ReturnPath::Echo { nonce, key_seed: MEASURER },
            sockets: 1,
            circuits_per_socket: 1,
            pace: Pace { burst: 1, per_s: NonZeroU32::MIN },
            second_tries: 0,
            seconds: u32::from(SECONDS),
            rate: RATE,
            window_cap_cells: 1000,
            check_one_in: forgers.check_one_in,
            setup_timeout: Duration::from_secs(8),
            stall_timeout: Duration::from_secs(2),
            unix_time_s: UNIX_TIME_S,
        };
        let rng = StdRng::seed_from_u64(2 * seed + 1);
        let generator = self.wire.add(LoadGenerator::new(config, rng, self.wire.now()));
        self.until(|measurement| {
            let now = measurement.wire.now();
            let node: &mut LoadGenerator<StdRng> = measurement.node(generator)?;
            match node.poll_event() {
                Some(Event::Ready { .. }) => {
                    node.start(now, now);
                    Ok(None)
                }
                Some(Event::Failed(failure)) => Ok(Some(Some(failure))),
                Some(Event::Finished) => Ok(Some(None)),
                Some(Event::Second(_) | Event::Lost { .. }) | None => Ok(None),
            }
        })
    }
}
