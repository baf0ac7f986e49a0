//! The client that performs the tests.

use super::Kit;
use super::fetch::Fetch;
use crate::engine::Engine;
use link::tls::TlsConfigs;
use link::{Driver, DriverOptions, NodeHandle, unix_time_s};
use onion::cell::BODY_LEN;
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Loss, Outcome, StreamNumber,
};
use onion::identity::RsaId;
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Circuits attempted before the relay counts as unreachable: other relays fail, too.
const ATTEMPTS: usize = 3;
/// Time limit for building a circuit: C tor's initial timeout.
const CIRCUIT_MAX: Duration = Duration::from_secs(60);
/// Time limit for the directory's answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Circuits through the relay that carry padding: C tor's `NUM_PARALLEL_TESTING_CIRCS`.
const PADDED_CIRCUITS: usize = 4;
/// Limit on padding cells: C tor's, a circuit window (tor-spec §7.4).
const PADDING_CELLS_MAX: u64 = 1_000;
/// Limit on padding in seconds of the rate.
const PADDING_S: u64 = 10;
/// Time for padding to pass before its circuits are closed.
const PADDING_MAX: Duration = Duration::from_secs(20);
/// Interval at which the end of the relay is checked.
const STEP: Duration = Duration::from_millis(200);

/// Why there is no result.
pub(super) enum Failure {
    /// The relay has ended.
    Ended,
    /// A failure.
    Problem(String),
}

/// A client that tests the relay.
pub(super) struct Tester {
    driver: Driver<Client<StdRng, Fetch>>,
    kit: Kit,
    /// Events of the client.
    events: Vec<ClientEvent>,
}

impl Tester {
    pub(super) fn new(mut kit: Kit) -> Result<Self, String> {
        let unix_time_s = unix_time_s();
        let tls = TlsConfigs::client().map_err(|error| error.to_string())?;
        let rng = StdRng::from_rng(&mut kit.rng);
        let client = Client::with_applications(unix_time_s, rng);
        let driver = Driver::new(client, kit.clock, tls, Vec::new(), DriverOptions::default());
        Ok(Self { driver: driver.map_err(|error| error.to_string())?, kit, events: Vec::new() })
    }

    /// Builds a circuit back to this relay. Fails if no attempt succeeds.
    pub(super) fn reach(&mut self) -> Result<CircuitNumber, Failure> {
        let mut problem = "no other relay is known that could connect to us".to_owned();
        for _ in 0..ATTEMPTS {
            let engine = &self.kit.engine;
            let hops = self.kit.others.before_us(|relay| !has_dialled(engine, relay));
            let Some(mut hops) = hops else { break };
            let last = hops.last().copied();
            hops.push(self.kit.own);
            let circuit = self.open(hops);
            let limit = self.driver.now() + CIRCUIT_MAX;
            match self.wait_until_built(circuit, limit)? {
                // The circuit may have used a link that this relay has dialled meanwhile.
                Ok(()) if last.is_some_and(|last| has_dialled(&self.kit.engine, &last.ids.rsa)) => {
                    self.driver.node_mut().destroy(circuit);
                    problem = "the only circuit may not have used the relay's port".into();
                }
                Ok(()) => return Ok(circuit),
                Err(why) => problem = why,
            }
        }
        Err(Failure::Problem(problem))
    }

    /// Sends a request to this relay's directory over a circuit to it. Returns whether it answered.
    pub(super) fn ask_directory(
        &mut self,
        circuit: CircuitNumber,
    ) -> Result<Option<bool>, Failure> {
        let now = self.driver.now();
        let mut answered = None;
        if self.kit.is_directory {
            let client = self.driver.node_mut();
            let stream = client.begin(now, circuit, Destination::Directory, Fetch::default());
            answered = Some(self.wait_for_answer(circuit, stream, now + ANSWER_MAX)?);
        }
        self.driver.node_mut().destroy(circuit);
        Ok(answered)
    }

    /// Sends padding through circuits with this relay in the middle. Returns whether any was built.
    pub(super) fn pad(&mut self, rate: Rate) -> Result<bool, Failure> {
        let cells = rate.as_byte_per_s().saturating_mul(PADDING_S) / BODY_LEN as u64;
        let each = cells.min(PADDING_CELLS_MAX) / PADDED_CIRCUITS as u64;
        let each = usize::try_from(each).unwrap_or(0);
        let pairs = self.kit.others.around_us(PADDED_CIRCUITS);
        let open = |[before, behind]: [NextHop; 2]| self.open(vec![before, self.kit.own, behind]);
        let circuits: Vec<_> = pairs.into_iter().map(open).collect();
        let limit = self.driver.now() + CIRCUIT_MAX;
        let mut open_circuits = Vec::new();
        for circuit in circuits {
            if self.wait_until_built(circuit, limit)?.is_ok() {
                open_circuits.push(circuit);
            }
        }
        let now = self.driver.now();
        for circuit in &open_circuits {
            self.driver.node_mut().send_drops(now, *circuit, each);
        }
        // Padding is not acknowledged: circuits stay open long enough for it to pass.
        let end = now + PADDING_MAX;
        while !open_circuits.is_empty() && self.driver.now() < end {
            self.turn(end)?;
        }
        Ok(!open_circuits.is_empty())
    }

    fn open(&mut self, hops: Vec<NextHop>) -> CircuitNumber {
        let now = self.driver.now();
        self.driver.node_mut().open(now, &CircuitPlan::new(hops))
    }

    /// Waits until a circuit is open; the inner error is the reason for a failure.
    fn wait_until_built(
        &mut self,
        circuit: CircuitNumber,
        limit: Instant,
    ) -> Result<Result<(), String>, Failure> {
        loop {
            if self.driver.node().is_built(circuit) {
                return Ok(Ok(()));
            }
            if self.driver.now() >= limit {
                self.driver.node_mut().destroy(circuit);
                return Ok(Err(format!("no circuit was built within {} s", CIRCUIT_MAX.as_secs())));
            }
            if let Some(cause) = self.loss_of(circuit) {
                return Ok(Err(describe(&cause)));
            }
            self.turn(limit)?;
        }
    }

    fn wait_for_answer(
        &mut self,
        circuit: CircuitNumber,
        stream: StreamNumber,
        limit: Instant,
    ) -> Result<bool, Failure> {
        while self.driver.now() < limit && self.loss_of(circuit).is_none() {
            let answered = self.events.iter().find_map(|event| match event {
                ClientEvent::Over { stream: over, outcome, .. } if *over == stream => {
                    Some(*outcome == Outcome::Complete)
                }
                _ => None,
            });
            if let Some(is_complete) = answered {
                return Ok(is_complete);
            }
            self.turn(limit)?;
        }
        Ok(false)
    }

    /// Why a circuit was closed, if it was.
    fn loss_of(&self, circuit: CircuitNumber) -> Option<Loss> {
        self.events.iter().find_map(|event| match event {
            ClientEvent::Lost { circuit: lost, cause } if *lost == circuit => Some(cause.clone()),
            _ => None,
        })
    }

    /// Runs the client for a moment.
    fn turn(&mut self, limit: Instant) -> Result<(), Failure> {
        if self.kit.relay.strong_count() == 0 {
            return Err(Failure::Ended);
        }
        let deadline = limit.min(self.driver.now() + STEP);
        self.driver
            .turn(deadline)
            .map_err(|error| Failure::Problem(format!("machine: {error}")))?;
        while let Some(event) = self.driver.node_mut().poll_event() {
            self.events.push(event);
        }
        Ok(())
    }
}

/// Whether the engine has a link to a relay that it has dialled. An engine that has ended has none.
fn has_dialled(engine: &NodeHandle<Engine>, relay: &RsaId) -> bool {
    let relay = *relay;
    engine.call(move |drive| drive.node().has_dialled(&relay)).unwrap_or(false)
}

/// Why a circuit was closed, and at which hop.
fn describe(cause: &Loss) -> String {
    match cause {
        Loss::Link(cause) => format!("we have no link to another relay ourselves: {cause}"),
        Loss::Channel(problem) => format!("the link to another relay: {problem}"),
        Loss::Circuit(_) | Loss::Flow(_) | Loss::Conflux(_) | Loss::Silent => {
            format!("other relays cannot connect to it ({cause})")
        }
    }
}
