//! Fetches directory documents through one-hop circuits, as unmodified clients do (BEGIN_DIR,
//! tor-spec §6.2.1). Nobody on the path can read or change them, and the directory proves its
//! identity.

use crate::begin_dir::{Answer, Exchange};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, unix_time_s};
use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{Fetcher, Problem, Resource};
use onion::cell::msg::EndReason;
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Loss, Outcome, StreamNumber,
};
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// Time limit for building the link and the circuit.
const CIRCUIT_MAX: Duration = Duration::from_secs(30);

/// Circuits to directories and the links below them. Each circuit serves all requests to its
/// directory.
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
    /// Creates the set without circuits.
    ///
    /// # Errors
    /// [`Problem`] if the host provides no randomness, keys or sockets.
    pub(crate) fn new() -> Result<Self, Problem> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
        let tls = TlsConfigs::client().map_err(machine)?;
        let client = Client::with_applications(unix_time_s(), rng);
        let options = DriverOptions::default();
        let driver = Driver::new(client, Clock::start(), tls, Vec::new(), options);
        Ok(Self { driver: driver.map_err(machine)?, open: BTreeMap::new() })
    }

    /// Fetches a document from a directory and waits for it.
    ///
    /// # Errors
    /// [`Problem`] if there is none.
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
            // After an error the next request uses a new circuit.
            self.open.remove(&directory.address);
            self.driver.node_mut().destroy(circuit);
        }
        got
    }

    /// The circuit to a directory, built if necessary.
    fn circuit(&mut self, directory: &NextHop) -> CircuitNumber {
        let standing = self.open.get(&directory.address).copied();
        if let Some(circuit) = standing.filter(|standing| self.driver.node().is_built(*standing)) {
            return circuit;
        }
        // CREATE_FAST is enough, without an onion key: there is no other hop to protect against.
        let plan = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![*directory]) };
        let now = self.driver.now();
        self.driver.node_mut().set_unix_time(unix_time_s());
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
        let (exchange, answer) = Exchange::new(what, have, limits.max_bytes);
        let now = self.driver.now();
        let stream = self.driver.node_mut().begin(now, circuit, Destination::Directory, exchange);
        match self.wait(circuit, stream, now, &answer, limits)? {
            Outcome::Ended(EndReason::DONE) => answer.document(),
            Outcome::Ended(reason) => {
                Err(Problem::Broken { reason: format!("the relay gives none: {reason}") })
            }
            Outcome::Complete | Outcome::WrongBytes { .. } => {
                Err(Problem::TooLong { max_bytes: limits.max_bytes })
            }
        }
    }

    /// Waits for the end of a stream.
    fn wait(
        &mut self,
        circuit: CircuitNumber,
        stream: StreamNumber,
        began: Instant,
        answer: &Answer,
        limits: &Fetcher,
    ) -> Result<Outcome, Problem> {
        let mut progress = (0, began);
        loop {
            while let Some(event) = self.driver.node_mut().poll_event() {
                match event {
                    ClientEvent::Over { stream: ended, outcome, .. } if ended == stream => {
                        return Ok(outcome);
                    }
                    ClientEvent::Lost { circuit: lost, cause } if lost == circuit => {
                        return Err(unreachable(&cause));
                    }
                    _ => {}
                }
            }
            let is_built = self.driver.node().is_built(circuit);
            let now = self.driver.now();
            if !is_built || answer.held_bytes() > progress.0 {
                progress = (answer.held_bytes(), now);
            }
            let (until, during) = if is_built {
                let silent = progress.1 + limits.silence_timeout;
                (silent.min(began + limits.total_timeout), "waiting for the document")
            } else {
                (began + limits.total_timeout.min(CIRCUIT_MAX), "connecting")
            };
            if now >= until {
                self.driver.node_mut().end(stream);
                return Err(Problem::TimedOut { during: during.to_owned() });
            }
            self.driver.turn(until).map_err(machine)?;
        }
    }
}
