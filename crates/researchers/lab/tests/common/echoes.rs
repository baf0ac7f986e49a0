//! A coordinator, its measurers, and a relay that is measured by echo, in virtual time.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::measurer_result::MeasurerResult;
use onion::measure::load::{LoadConfig, LoadFailure, LoadGenerator, Pace, ReturnPath, Target};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::measure::target::TargetParams;
use onion::router::{Behavior, RateLimit, Router, RouterConfig};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sim::wire::{Ended, NodeId, Wire, WireConfig};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

const COORDINATOR: [u8; 32] = [1; 32];
pub(crate) const NONCE: Nonce = Nonce([9; 32]);

type Random = ChaCha8Rng;
pub(crate) type Measurer = LoadGenerator<Random>;

/// The seed of a measurer's key.
pub(crate) const fn measurer_seed(number: u8) -> [u8; 32] {
    [100 + number; 32]
}

pub(crate) fn target() -> Target {
    Target { address: SocketAddr::from(([10, 0, 0, 1], 9001)), ids: identities().relay.ids() }
}

/// The measurement and its parties.
#[derive(Clone)]
pub(crate) struct Scenario {
    /// Each measurer's start, relative to the common one.
    pub(crate) lags: Vec<Duration>,
    pub(crate) sockets: u32,
    pub(crate) circuits_per_socket: u32,
    /// The length of the measurement for the measurers and for the relay.
    pub(crate) seconds: (u32, u16),
    pub(crate) rate: Rate,
    pub(crate) check_one_in: u32,
    /// The relay's rate limit.
    pub(crate) limit: Option<Rate>,
    pub(crate) piece_max_bytes: Option<usize>,
    pub(crate) seed: u64,
    /// Stops the coordinator's link after this number of reported seconds.
    pub(crate) stop_after: Option<u16>,
    /// The measurers named in the order.
    pub(crate) named: u8,
}

impl Default for Scenario {
    /// Two measurers of two sockets, two circuits each, for two seconds.
    fn default() -> Self {
        Self {
            lags: vec![Duration::ZERO; 2],
            sockets: 2,
            circuits_per_socket: 2,
            seconds: (2, 2),
            rate: Rate::from_mbit_per_s(10.0),
            check_one_in: 125,
            limit: None,
            piece_max_bytes: None,
            seed: 1,
            stop_after: None,
            named: 2,
        }
    }
}

/// The result of a scenario.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) order: Vec<OrderEvent>,
    pub(crate) measurers: Vec<MeasurerResult>,
    pub(crate) fingerprint: u64,
}

impl Report {
    #[track_caller]
    pub(crate) fn failure(&self, measurer: usize) -> &LoadFailure {
        match &self.measurers[measurer].result {
            Some(Err(failure)) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }
}

impl Scenario {
    pub(crate) fn generator(&self, number: u8, now: Instant) -> Measurer {
        let config = LoadConfig {
            held_back: None,
            few_circuits: None,
            target: target(),
            return_path: ReturnPath::Echo { nonce: NONCE, key_seed: measurer_seed(number) },
            sockets: self.sockets,
            circuits_per_socket: self.circuits_per_socket,
            pace: Pace { burst: 100, per_s: NonZeroU32::new(100).unwrap() },
            second_tries: 0,
            seconds: self.seconds.0,
            rate: self.rate,
            window_cap_cells: 2000,
            check_one_in: NonZeroU32::new(self.check_one_in).unwrap(),
            setup_timeout: Duration::from_secs(8),
            stall_timeout: Duration::from_millis(2000),
            unix_time_s: UNIX_TIME_S,
        };
        LoadGenerator::new(config, Random::seed_from_u64(self.seed ^ u64::from(number)), now)
    }

    pub(crate) fn order(&self, now: Instant) -> OrderLink {
        let sockets = self.sockets * u32::try_from(self.lags.len()).unwrap();
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: target().ids,
            measurers: (0..self.named)
                .map(|number| MeasurerKey::of_seed(&measurer_seed(number)))
                .collect(),
            seconds: self.seconds.1,
            client_share: ClientShare::DEFAULT,
            sockets: u16::try_from(sockets).unwrap(),
            expires_unix_s: UNIX_TIME_S + 600,
            nonce: NONCE,
        };
        let config = OrderConfig {
            target: target(),
            order,
            key_seed: COORDINATOR,
            accept_timeout: Duration::from_secs(5),
            random: [3; 24],
            unix_time_s: UNIX_TIME_S,
        };
        OrderLink::new(config, now)
    }

    fn wire(&self) -> Wire {
        let piece_max_bytes = self.piece_max_bytes.and_then(NonZeroUsize::new);
        Wire::new(WireConfig { piece_max_bytes, seed: self.seed, ..WireConfig::default() })
    }

    /// Measures a router with this behavior.
    pub(crate) fn run<C: Behavior + 'static>(&self, behavior: C) -> Report {
        let config = RouterConfig {
            target: TargetParams {
                is_allowed: true,
                coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
                ..TargetParams::default()
            },
            limit: self.limit.map(|rate| RateLimit { rate, burst_bytes: 16_384 }),
            ..RouterConfig::new(Arc::clone(&identities().relay), UNIX_TIME_S)
        };
        let rng = Random::seed_from_u64(!self.seed);
        let mut wire = self.wire();
        let relay_node = wire.add(Router::with_behavior(config, behavior, rng, Instant::ORIGIN));
        let certificate = identities().relays.tls_credentials().unwrap().0[0].to_vec();
        wire.listen(relay_node, target().address, &certificate).unwrap();
        let mut run = Run {
            order: wire.add(self.order(Instant::ORIGIN)),
            measurers: Vec::new(),
            started: false,
            scenario: self,
            report: Report { order: Vec::new(), measurers: Vec::new(), fingerprint: 0 },
        };
        let end = Instant::ORIGIN + Duration::from_secs(60);
        let ended = wire.run_until(end, |wire| run.poll(wire));
        assert_eq!(ended, Ok(Ended::Satisfied), "no end: {:?}", run.report);
        run.report.fingerprint = wire.fingerprint();
        // After all connections are closed, no events are left.
        let order: &mut OrderLink = wire.node_mut(run.order).unwrap();
        order.stop();
        wire.drive_bounded(100_000).expect("no events are left");
        run.report
    }
}

/// A running scenario.
struct Run<'s> {
    order: NodeId,
    measurers: Vec<NodeId>,
    started: bool,
    scenario: &'s Scenario,
    report: Report,
}

impl Run<'_> {
    /// Performs the actions of a coordinator's shell; returns true at the end.
    fn poll(&mut self, wire: &mut Wire) -> bool {
        let now = wire.now();
        let order: &mut OrderLink = wire.node_mut(self.order).unwrap();
        while let Some(event) = order.poll_event() {
            if let OrderEvent::ClientSecond(second, _) = &event
                && self.scenario.stop_after == Some(second.second + 1)
            {
                order.stop();
            }
            self.report.order.push(event);
        }
        if self.report.order.contains(&OrderEvent::Accepted) && self.measurers.is_empty() {
            for number in 0..self.scenario.lags.len() {
                let number = u8::try_from(number).unwrap();
                self.measurers.push(wire.add(self.scenario.generator(number, now)));
                self.report.measurers.push(MeasurerResult::default());
            }
        }
        for (id, found) in self.measurers.iter().zip(&mut self.report.measurers) {
            let generator: &mut Measurer = wire.node_mut(*id).unwrap();
            while let Some(event) = generator.poll_event() {
                found.record(event);
            }
        }
        let is_ready = |found: &MeasurerResult| found.ready.is_some();
        if !self.started && !self.measurers.is_empty() && self.report.measurers.iter().all(is_ready)
        {
            self.started = true;
            for (id, lag) in self.measurers.iter().zip(&self.scenario.lags) {
                let generator: &mut Measurer = wire.node_mut(*id).unwrap();
                generator.start(now, now + Duration::from_millis(100) + *lag);
            }
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        let Report { order, measurers, .. } = &self.report;
        let order_is_over =
            matches!(order.last(), Some(OrderEvent::Finished | OrderEvent::Failed(_)))
                || self.scenario.stop_after.is_some();
        let is_lost = matches!(order.last(), Some(OrderEvent::Failed(_)));
        let all_over = measurers.iter().all(|found| found.result.is_some());
        let one_failed = measurers.iter().any(|found| matches!(found.result, Some(Err(_))));
        (order_is_over && all_over && (is_lost || !measurers.is_empty())) || one_failed && all_over
    }
}
