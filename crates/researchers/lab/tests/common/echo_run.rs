//! A measurement by echo of a router with clients, in virtual time or on real sockets.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::echo_report::{Part, Report};
use crate::common::echo_scenario::{COORDINATOR, MEASURERS, Scenario};
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::measurer_result::MeasurerResult;
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, Stage};
use lab::liars::EchoLiar;
use onion::measure::Second;
use onion::measure::load::{
    Event, HeldBack, LoadConfig, LoadFailure, LoadGenerator, Pace, ReturnPath, ReturnRelay, Target,
};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{Nonce, Order};
use onion::router::{RateLimit, Router, RouterConfig, RouterEvent, RouterTotals};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Longer than any set-up.
const SOON: Duration = Duration::from_secs(20);

/// Seconds without a measurement, before and after it.
pub(crate) const ALONE_S: u32 = 2;

/// A router on the stage, and its address.
pub(crate) type Relay = Router<ChaCha8Rng, EchoLiar>;
pub(crate) type Measurer = LoadGenerator<ChaCha8Rng>;

/// A relay that may be measured, its clients, measurers and coordinators.
pub(crate) struct Run<'a, S> {
    pub(crate) stage: S,
    pub(crate) scenario: &'a Scenario,
    pub(crate) relay: NodeHandle,
    pub(crate) target: Target,
    clients: Option<Clients>,
    /// The relay's real traffic in each measured second.
    pub(crate) measured: Vec<(u64, u64)>,
    /// Its other events.
    pub(crate) events: Vec<RouterEvent>,
    nonces: u8,
}

struct Clients {
    node: NodeHandle,
    began: Instant,
    seconds: Vec<Second>,
    ended: Option<LoadFailure>,
}

impl<'a, S: Stage> Run<'a, S> {
    /// Starts a relay, and its clients if the scenario has some.
    pub(crate) fn begin(mut stage: S, scenario: &'a Scenario) -> Self {
        let address = stage.reserve();
        let config = RouterConfig {
            target: scenario.target_params(),
            limit: scenario.limit.map(|rate| RateLimit { rate, burst_bytes: 0 }),
            queue_limit_cells: scenario.queue_limit_cells,
            held_bytes_max: scenario.held_bytes_max,
            ..RouterConfig::new(Arc::clone(&identities().relay), UNIX_TIME_S)
        };
        let behavior = EchoLiar::new(scenario.lie);
        let router = Router::with_behavior(config, behavior, scenario.rng(0), stage.now());
        let relay = stage.add(router, &identities().relays, &[address]);
        let target = Target { address, ids: identities().relay.ids() };
        let (measured, events) = (Vec::new(), Vec::new());
        let mut run =
            Self { stage, scenario, relay, target, clients: None, measured, events, nonces: 0 };
        if let Some(rate) = scenario.clients {
            run.begin_clients(rate);
            run.pass(Duration::from_secs(u64::from(ALONE_S)));
        }
        run
    }

    pub(crate) fn load_config(&self, return_path: ReturnPath) -> LoadConfig {
        let scenario = self.scenario;
        LoadConfig {
            few_circuits: None,
            held_back: scenario.held_back.map(|after| HeldBack { after, sockets_before: 0 }),
            target: self.target,
            return_path,
            sockets: scenario.sockets,
            circuits_per_socket: scenario.circuits_per_socket,
            pace: Pace { burst: 10, per_s: NonZeroU32::new(100).unwrap() },
            second_tries: 0,
            seconds: u32::from(scenario.seconds),
            rate: scenario.rate.scaled(1.0 / scenario.measurers as f64),
            window_cap_cells: scenario.window_cap_cells,
            check_one_in: NonZeroU32::new(scenario.check_one_in).unwrap(),
            setup_timeout: Duration::from_secs(8),
            stall_timeout: Duration::from_millis(2000),
            unix_time_s: UNIX_TIME_S,
        }
    }

    /// Adds a load generator that sends through the relay to itself, as clients do.
    pub(crate) fn add_transit(&mut self, seconds: u32, rate: Rate) -> NodeHandle {
        let addresses: Vec<SocketAddr> =
            identities().landings.iter().map(|_| self.stage.reserve()).collect();
        let landings = identities().landings.iter().zip(&addresses).map(|(identity, address)| {
            ReturnRelay { identity: Arc::clone(identity), address: *address }
        });
        let return_path =
            ReturnPath::Transit { landings: landings.collect(), authenticate_as: Vec::new() };
        let config = self.load_config(return_path);
        let stall_timeout = Duration::from_secs(60);
        let config = LoadConfig { seconds, rate, stall_timeout, ..config };
        let generator = LoadGenerator::new(config, self.scenario.rng(7), self.stage.now());
        self.stage.add(generator, &identities().others, &addresses)
    }

    pub(crate) fn begin_clients(&mut self, rate: Rate) {
        let node = self.add_transit(300, rate);
        self.stage.until(SOON, |stage| {
            let now = stage.now();
            let generator: &mut Measurer = stage.node(node);
            let is_ready = matches!(generator.poll_event(), Some(Event::Ready { .. }));
            generator.start(now, now);
            is_ready
        });
        let began = self.stage.now();
        self.clients = Some(Clients { node, began, seconds: Vec::new(), ended: None });
    }

    /// Lets time pass and handles events.
    pub(crate) fn pass(&mut self, time: Duration) {
        let deadline = self.stage.now() + time;
        while self.stage.now() < deadline && self.stage.step() {
            self.poll_events();
        }
    }

    /// Records the events of relay and clients.
    pub(crate) fn poll_events(&mut self) {
        while let Some(event) = self.stage.node::<Relay>(self.relay).poll_event() {
            match event {
                RouterEvent::MeasuredSecond { measured_bytes, client_bytes, .. } => {
                    self.measured.push((measured_bytes, client_bytes));
                }
                other => self.events.push(other),
            }
        }
        let Some(clients) = &mut self.clients else { return };
        while let Some(event) = self.stage.node::<Measurer>(clients.node).poll_event() {
            match event {
                Event::Second(second) => clients.seconds.push(second),
                Event::Failed(failure) => clients.ended = Some(failure),
                Event::Ready { .. } | Event::Lost { .. } | Event::Finished => {}
            }
        }
    }

    pub(crate) fn totals(&mut self) -> RouterTotals {
        *self.stage.node::<Relay>(self.relay).totals()
    }

    /// The clients' traffic in each second within this interval.
    pub(crate) fn client_bytes(&self, from: Instant, until: Instant) -> Vec<u64> {
        let clients = self.clients.as_ref().expect("there are some");
        let start = |second: &Second| clients.began + Duration::from_secs(second.index.into());
        let is_within = |second: &&Second| {
            start(second) >= from && start(second) + Duration::from_secs(1) <= until
        };
        clients.seconds.iter().filter(is_within).map(|second| second.bytes).collect()
    }

    #[track_caller]
    pub(crate) fn assert_clients_live(&self) {
        let clients = self.clients.as_ref().expect("there are some");
        assert_eq!(clients.ended, None, "the clients' traffic has ended");
        assert!(clients.seconds.iter().all(|second| second.bytes > 0), "{:?}", clients.seconds);
    }

    /// How the clients' traffic ended, if it has.
    pub(crate) fn client_failure(&self) -> Option<&LoadFailure> {
        self.clients.as_ref().expect("there are some").ended.as_ref()
    }

    pub(crate) fn order_config(&self, order: Order) -> OrderConfig {
        OrderConfig {
            target: self.target,
            order,
            key_seed: COORDINATOR,
            accept_timeout: Duration::from_secs(8),
            random: [7; 24],
            unix_time_s: UNIX_TIME_S,
        }
    }

    /// The scenario's next order.
    pub(crate) fn next_order(&mut self) -> Order {
        self.nonces += 1;
        self.scenario.order(self.nonces)
    }

    pub(crate) fn add_order(&mut self, order: Order) -> NodeHandle {
        let config = self.order_config(order);
        let link = OrderLink::new(config, self.stage.now());
        self.stage.add(link, &identities().others, &[])
    }

    /// The first result of an order.
    #[track_caller]
    pub(crate) fn answer(&mut self, link: NodeHandle) -> OrderEvent {
        let mut answer = None;
        self.stage.until(SOON, |stage| {
            answer = stage.node::<OrderLink>(link).poll_event();
            answer.is_some()
        });
        self.poll_events();
        answer.unwrap()
    }

    pub(crate) fn add_measurer(&mut self, number: usize, nonce: Nonce) -> Part {
        let return_path = ReturnPath::Echo { nonce, key_seed: MEASURERS[number] };
        self.add_generator(10 + u64::try_from(number).unwrap(), return_path)
    }

    pub(crate) fn add_generator(&mut self, of: u64, return_path: ReturnPath) -> Part {
        let config = self.load_config(return_path);
        let generator = LoadGenerator::new(config, self.scenario.rng(of), self.stage.now());
        let node = self.stage.add(generator, &identities().others, &[]);
        Part { node, found: MeasurerResult::default() }
    }

    /// A peer whose link to the relay is open.
    #[track_caller]
    pub(crate) fn add_peer(&mut self) -> NodeHandle {
        let peer = Peer::dialling(self.target, UNIX_TIME_S);
        let node = self.stage.add(peer, &identities().others, &[]);
        self.stage.until(SOON, |stage| stage.node::<Peer>(node).is_open());
        node
    }

    pub(crate) fn peer(&mut self, node: NodeHandle) -> &mut Peer {
        self.stage.node(node)
    }

    /// Runs until `is_done` returns true for a peer.
    #[track_caller]
    pub(crate) fn until_peer(&mut self, node: NodeHandle, is_done: impl Fn(&Peer) -> bool) {
        self.stage.until(SOON, |stage| is_done(stage.node(node)));
        self.poll_events();
    }

    /// Handles a measurer's events.
    pub(crate) fn poll_part(&mut self, part: &mut Part) {
        while let Some(event) = self.stage.node::<Measurer>(part.node).poll_event() {
            part.found.record(event);
        }
    }

    /// Runs until `is_done` returns true for the measurers' results.
    #[track_caller]
    pub(crate) fn until(
        &mut self,
        parts: &mut [Part],
        mut is_done: impl FnMut(&mut Self, &[Part]) -> bool,
    ) {
        let deadline = self.stage.now() + SOON + Duration::from_secs(self.scenario.seconds.into());
        loop {
            self.poll_events();
            parts.iter_mut().for_each(|part| self.poll_part(part));
            if is_done(self, parts) {
                return;
            }
            assert!(self.stage.now() < deadline && self.stage.step(), "no end: {parts:?}");
        }
    }

    pub(crate) fn start(&mut self, parts: &[Part]) -> Instant {
        let now = self.stage.now();
        let at = now + Duration::from_millis(50);
        for part in parts {
            self.stage.node::<Measurer>(part.node).start(now, at);
        }
        at
    }

    pub(crate) fn stop(&mut self, part: &Part) {
        self.stage.node::<Measurer>(part.node).stop();
    }

    /// Sends an order, which must be accepted, and waits until the measurers are ready or have failed.
    #[track_caller]
    pub(crate) fn prepare(&mut self) -> (NodeHandle, Vec<Part>) {
        let order = self.next_order();
        let nonce = order.nonce;
        let link = self.add_order(order);
        assert_eq!(self.answer(link), OrderEvent::Accepted);
        let mut parts: Vec<Part> =
            (0..self.scenario.measurers).map(|number| self.add_measurer(number, nonce)).collect();
        self.until(&mut parts, |_, parts| {
            parts.iter().all(|part| part.found.ready.is_some() || part.found.result.is_some())
        });
        (link, parts)
    }

    /// One measurement from the order to its end.
    #[track_caller]
    pub(crate) fn measure(&mut self) -> Report {
        let (link, parts) = self.prepare();
        self.finish(link, parts)
    }

    /// Starts the measurers and runs to the end.
    #[track_caller]
    pub(crate) fn finish(&mut self, link: NodeHandle, mut parts: Vec<Part>) -> Report {
        let began = self.start(&parts);
        let mut report = Report { order: None, parts: Vec::new(), client_seconds: vec![], began };
        self.until(&mut parts, |run, parts| {
            run.poll_order(link, &mut report);
            let has_failed = |part: &Part| matches!(part.found.result, Some(Err(_)));
            // A coordinator aborts when a measurer fails.
            if parts.iter().any(has_failed) {
                run.stage.node::<OrderLink>(link).stop();
                return true;
            }
            matches!(report.order, Some(Err(_)))
                || report.order.is_some() && parts.iter().all(|part| part.found.result.is_some())
        });
        for part in &parts {
            self.stop(part);
        }
        report.parts = parts;
        report
    }

    /// Handles the events of the coordinator's link.
    pub(crate) fn poll_order(&mut self, link: NodeHandle, report: &mut Report) {
        while let Some(event) = self.stage.node::<OrderLink>(link).poll_event() {
            match event {
                OrderEvent::Accepted => {}
                OrderEvent::ClientSecond(second, _) => report.client_seconds.push(second),
                OrderEvent::Finished => report.order = Some(Ok(())),
                OrderEvent::Failed(failure) => report.order = Some(Err(failure)),
            }
        }
    }

    /// The coordinator closes its link.
    pub(crate) fn stop_order(&mut self, link: NodeHandle) {
        self.stage.node::<OrderLink>(link).stop();
    }

    pub(crate) fn behavior(&mut self) -> &EchoLiar {
        self.stage.node::<Relay>(self.relay).behavior()
    }

    pub(crate) fn open_circuits(&mut self) -> usize {
        self.stage.node::<Relay>(self.relay).open_circuits()
    }
}
