//! Measures the round trip of a quiet circuit through a relay that is busy with others.

use crate::error::{Error, Result};
use lab::load::{Nodes, listen, rng};
use link::{Clock, Drive, DriverOptions, NodeThread, Observer, ThreadError, unix_time_s};
use onion::cell::msg::BeginFlags;
use onion::circuit::NextHop;
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Destination, Loss, Outcome, Transfer,
};
use onion::measure::load::Target;
use onion::router::schedule::SchedulerConfig;
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The pause between two round trips.
const PAUSE: Duration = Duration::from_millis(20);

/// The timeout for building the circuit.
const SETUP: Duration = Duration::from_secs(30);

/// The number of attempts to build the circuit. Every second, C tor closes incomplete circuits on a client's
/// connection without traffic for a minute, and a connection whose first answer is still queued counts as one.
const TRIES: u32 = 5;

/// A quiet circuit through a relay to our relay, which refuses its streams. It is open until this is dropped.
pub(super) struct QuietCircuit {
    probe: SharedProbe,
    _client: NodeThread<Client<StdRng>>,
    _landing: NodeThread<Router<StdRng>>,
}

#[derive(Default)]
struct ProbeState {
    is_built: bool,
    failure: Option<String>,
    round_trips: Vec<(Instant, Duration)>,
}

/// The state of the probe, shared by all threads.
#[derive(Clone, Default)]
struct SharedProbe(Arc<Mutex<ProbeState>>);

impl SharedProbe {
    fn with<T>(&self, look: impl FnOnce(&mut ProbeState) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fail(&self, problem: impl ToString) {
        self.with(|probe| _ = probe.failure.get_or_insert(problem.to_string()));
    }
}

impl QuietCircuit {
    /// Builds the circuit. `clock` dates its round trips.
    pub(super) fn start(target: Target, clock: Clock) -> Result<Self> {
        let mut nodes = Nodes::new(clock)?;
        let identity = nodes.identity()?;
        let (at, listener) = listen(None, Ipv4Addr::LOCALHOST, 0)?;
        let landing = NextHop::to_own(&identity, at);
        // Keeps the delay of the far end small.
        let scheduler = SchedulerConfig::vanilla();
        let config = RouterConfig { scheduler, ..RouterConfig::new(identity, unix_time_s()) };
        let router = Router::new(config, rng()?, clock.now());
        let (options, probe) = (DriverOptions::default(), SharedProbe::default());
        let router = nodes.start(None, router, vec![listener], options, probe.clone())?;

        // CREATE_FAST does not use the first hop's onion key.
        let first = NextHop { address: target.address, ids: target.ids, onion_key: [0; 32] };
        let path = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![first, landing]) };
        let mut client = Client::new(unix_time_s(), rng()?);
        let circuit = client.open(clock.now(), &path);
        let prober = Prober { path, circuit, tries: 1, next: None, probe: probe.clone() };
        let client = nodes.start(None, client, Vec::new(), options, prober)?;
        let quiet = Self { probe, _client: client, _landing: router };
        let deadline = clock.now() + SETUP;
        loop {
            let (is_built, failure) =
                quiet.probe.with(|probe| (probe.is_built, probe.failure.clone()));
            match failure {
                Some(failure) => return Err(Error::clients(failure)),
                None if is_built => return Ok(quiet),
                None if clock.now() > deadline => {
                    return Err(Error::clients("timeout while building the quiet circuit"));
                }
                None => thread::park_timeout(PAUSE),
            }
        }
    }

    /// The round trips that ended between two instants.
    pub(super) fn round_trips(&self, from: Instant, to: Instant) -> Result<Vec<Duration>> {
        self.probe.with(|probe| {
            if let Some(failure) = &probe.failure {
                return Err(Error::clients(failure));
            }
            let within = probe.round_trips.iter().filter(|(at, _)| (from..=to).contains(at));
            Ok(within.map(|(_, took)| *took).collect())
        })
    }
}

impl Observer<Router<StdRng>> for SharedProbe {
    fn before_turn(&mut self, _: &mut dyn Drive<Router<StdRng>>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.fail(failure);
    }
}

/// Measures one round trip after the other.
struct Prober {
    path: CircuitPlan,
    circuit: CircuitNumber,
    tries: u32,
    /// When the next one begins; `None` while one is under way.
    next: Option<Instant>,
    probe: SharedProbe,
}

impl Observer<Client<StdRng>> for Prober {
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Built { .. } => {
                    self.probe.with(|probe| probe.is_built = true);
                    self.next = Some(now);
                }
                ClientEvent::Over { outcome: Outcome::Ended(_), figures, .. } => {
                    self.probe.with(|probe| probe.round_trips.push((now, figures.to_last())));
                    self.next = Some(now + PAUSE);
                }
                ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
                ClientEvent::Over { outcome, .. } => {
                    self.probe.fail(format!("a stream was not refused: {outcome}"));
                }
                ClientEvent::Lost { cause: Loss::Circuit(_), .. }
                    if self.tries < TRIES && !self.probe.with(|probe| probe.is_built) =>
                {
                    self.tries += 1;
                    self.circuit = client.open(now, &self.path);
                }
                ClientEvent::Lost { cause, .. } => {
                    self.probe.fail(format!("the quiet circuit is lost: {cause}"));
                }
            }
        }
        if self.next.take_if(|next| *next <= now).is_some() {
            let to = Destination::Host("192.0.2.1".to_owned(), 80, BeginFlags::default());
            client.begin(now, self.circuit, to, Transfer::download(0, 0));
        }
        self.next
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.probe.fail(failure);
    }
}
