//! Documents of directories inside circuits of one hop, as stock clients ask for them (BEGIN_DIR, tor-spec §6.2.1). Nobody between sees
//! what is asked for, or changes what is answered; the directory itself proves its identity.

mod answer;

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, unix_time_s};
use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{Fetcher, Problem, Resource};
use onion::cell::msg::EndReason;
use onion::circuit::NextHop;
use onion::client::{
    Application, CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Loss, Outcome,
    Progress, StreamNumber,
};
use onion::suite::Tor;
use onion::{Duration, Instant};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

/// Time for the link and the circuit to stand.
const CIRCUIT_MAX: Duration = Duration::from_secs(30);

/// Our end of a stream to a directory.
#[derive(Debug)]
struct Exchange {
    request: Vec<u8>,
    answer: Rc<RefCell<Vec<u8>>>,
    /// The answer is no longer.
    max_bytes: usize,
}

impl Application<Tor> for Exchange {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < self.request.len() as u64
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut [u8]) -> usize {
        let rest = usize::try_from(sent_bytes).ok().and_then(|sent| self.request.get(sent..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        len
    }

    fn take(&mut self, _received_bytes: u64, data: &[u8]) -> Progress {
        let mut answer = self.answer.borrow_mut();
        if answer.len() + data.len() > self.max_bytes {
            return Progress::Wrong;
        }
        answer.extend_from_slice(data);
        Progress::Open
    }
}

/// Circuits to directories, each used for all that is asked of one, with the links below them.
pub(crate) struct Tunnels {
    driver: Driver<Client<StdRng, Exchange>>,
    open: BTreeMap<SocketAddr, CircuitNumber>,
}

fn machine(error: impl fmt::Display) -> Problem {
    Problem::Unreachable { reason: format!("machine: {error}") }
}

fn unreachable(cause: &Loss) -> Problem {
    Problem::Unreachable { reason: cause.to_string() }
}

impl Tunnels {
    /// Without any circuit.
    ///
    /// # Errors
    /// Where the machine gives no randomness, keys or sockets.
    pub(crate) fn new() -> Result<Self, Problem> {
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let now = unix_time_s();
        let tls = TlsConfigs::nameless(seed, now).map_err(machine)?;
        let client = Client::with_applications(now, rng);
        let options = DriverOptions::default();
        let driver = Driver::new(client, Clock::start(), tls, Vec::new(), options);
        Ok(Self { driver: driver.map_err(machine)?, open: BTreeMap::new() })
    }

    /// Asks a directory for a document, and waits for it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn get(
        &mut self,
        directory: &NextHop,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, Problem> {
        let circuit = self.circuit(directory);
        let got = self.exchange(circuit, what, have, limits);
        if got.is_err() {
            // Whatever it was, the next question is not to wait for it.
            self.open.remove(&directory.address);
            self.driver.node_mut().destroy(circuit);
        }
        got
    }

    /// A circuit to a directory: that which stands, or another.
    fn circuit(&mut self, directory: &NextHop) -> CircuitNumber {
        let standing = self.open.get(&directory.address).copied();
        if let Some(circuit) = standing.filter(|it| self.driver.node().is_built(*it)) {
            return circuit;
        }
        // There is no other hop from which it could be hidden what goes on: CREATE_FAST, and no onion key is needed.
        let plan = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![*directory]) };
        let now = self.driver.now();
        let circuit = self.driver.node_mut().open(now, &plan);
        self.open.insert(directory.address, circuit);
        circuit
    }

    fn exchange(
        &mut self,
        circuit: CircuitNumber,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, Problem> {
        let answer = Rc::default();
        let max_bytes = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
        let max_bytes = max_bytes.saturating_add(answer::HEAD_MAX);
        let request = answer::request(what, have);
        let exchange = Exchange { request, answer: Rc::clone(&answer), max_bytes };
        let now = self.driver.now();
        let stream = self.driver.node_mut().begin(now, circuit, Destination::Directory, exchange);
        match self.wait(circuit, stream, now, limits)? {
            Outcome::Ended(EndReason::DONE) => answer::document(answer.take(), limits.max_bytes),
            Outcome::Ended(reason) => {
                Err(Problem::Broken { reason: format!("the relay gives none: {reason}") })
            }
            Outcome::Complete | Outcome::WrongBytes { .. } => {
                Err(Problem::TooLong { max_bytes: limits.max_bytes })
            }
        }
    }

    /// Waits until a stream is over.
    fn wait(
        &mut self,
        circuit: CircuitNumber,
        stream: StreamNumber,
        began: Instant,
        limits: &Fetcher,
    ) -> Result<Outcome, Problem> {
        loop {
            while let Some(event) = self.driver.node_mut().poll_event() {
                match event {
                    ClientEvent::Over { stream: it, outcome, .. } if it == stream => {
                        return Ok(outcome);
                    }
                    ClientEvent::Lost { circuit: it, cause } if it == circuit => {
                        return Err(unreachable(&cause));
                    }
                    _ => {}
                }
            }
            let is_built = self.driver.node().is_built(circuit);
            let (limit, during) = if is_built {
                (limits.total_timeout, "waiting for the document")
            } else {
                (limits.total_timeout.min(CIRCUIT_MAX), "connecting")
            };
            if self.driver.now() >= began + limit {
                self.driver.node_mut().end(stream);
                return Err(Problem::TimedOut { during: during.to_owned() });
            }
            self.driver.turn(began + limit).map_err(machine)?;
        }
    }
}
