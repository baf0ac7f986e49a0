//! A circuit with next to nothing on it, through a relay that is busy with others: how long is its
//! round trip?

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

/// From one round trip's end to the next one's begin.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for the circuit to stand.
const SETUP: Duration = Duration::from_secs(30);

/// How often it is tried. Stock tor looks at its circuits every second and ends each that goes no
/// further on a client's connection on which nothing was sent for a minute; to it, a connection whose
/// first answer is still queued is one of these.
const TRIES: u32 = 5;

/// A quiet circuit of two hops, for as long as this lives: through a relay, to our relay that
/// refuses its streams.
pub(super) struct QuietCircuit {
    told: SharedTold,
    _client: NodeThread<Client<StdRng>>,
    _landing: NodeThread<Router<StdRng>>,
}

#[derive(Default)]
struct ProbeState {
    is_built: bool,
    failure: Option<String>,
    round_trips: Vec<(Instant, Duration)>,
}

/// The results, for all threads.
#[derive(Clone, Default)]
struct SharedTold(Arc<Mutex<ProbeState>>);

impl SharedTold {
    fn with<T>(&self, look: impl FnOnce(&mut ProbeState) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fail(&self, problem: impl ToString) {
        self.with(|told| _ = told.failure.get_or_insert(problem.to_string()));
    }
}

impl QuietCircuit {
    /// Builds it; `clock` dates its round trips.
    pub(super) fn start(target: Target, clock: Clock) -> Result<Self> {
        let mut nodes = Nodes::new(clock)?;
        let identity = nodes.identity()?;
        let (at, listener) = listen(None, Ipv4Addr::LOCALHOST, 0)?;
        let landing = NextHop::to_own(&identity, at);
        // What is at the end is to add as little as can be.
        let scheduler = SchedulerConfig::vanilla();
        let config = RouterConfig { scheduler, ..RouterConfig::new(identity, unix_time_s()) };
        let router = Router::new(config, rng()?, clock.now());
        let (options, told) = (DriverOptions::default(), SharedTold::default());
        let router = nodes.start(None, router, vec![listener], options, told.clone())?;

        // By CREATE_FAST the first hop's onion key is not needed.
        let first = NextHop { address: target.address, ids: target.ids, onion_key: [0; 32] };
        let path = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![first, landing]) };
        let mut client = Client::new(unix_time_s(), rng()?);
        let circuit = client.open(clock.now(), &path);
        let asker = Asker { path, circuit, tries: 1, next: None, told: told.clone() };
        let client = nodes.start(None, client, Vec::new(), options, asker)?;
        let quiet = Self { told, _client: client, _landing: router };
        let deadline = clock.now() + SETUP;
        loop {
            let (is_built, failure) = quiet.told.with(|told| (told.is_built, told.failure.clone()));
            match failure {
                Some(failure) => return Err(Error::clients(failure)),
                None if is_built => return Ok(quiet),
                None if clock.now() > deadline => {
                    return Err(Error::clients("the quiet circuit does not stand in time"));
                }
                None => thread::park_timeout(PAUSE),
            }
        }
    }

    /// The round trips that ended between two instants.
    pub(super) fn round_trips(&self, from: Instant, to: Instant) -> Result<Vec<Duration>> {
        self.told.with(|told| {
            if let Some(failure) = &told.failure {
                return Err(Error::clients(failure));
            }
            let within = told.round_trips.iter().filter(|(at, _)| (from..=to).contains(at));
            Ok(within.map(|(_, took)| *took).collect())
        })
    }
}

impl Observer<Router<StdRng>> for SharedTold {
    fn before_turn(&mut self, _: &mut dyn Drive<Router<StdRng>>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.fail(failure);
    }
}

/// Has one round trip after the other.
struct Asker {
    path: CircuitPlan,
    circuit: CircuitNumber,
    tries: u32,
    /// When the next one begins; `None` while one is under way.
    next: Option<Instant>,
    told: SharedTold,
}

impl Observer<Client<StdRng>> for Asker {
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Built { .. } => {
                    self.told.with(|told| told.is_built = true);
                    self.next = Some(now);
                }
                ClientEvent::Over { outcome: Outcome::Ended(_), figures, .. } => {
                    self.told.with(|told| told.round_trips.push((now, figures.to_last())));
                    self.next = Some(now + PAUSE);
                }
                ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
                ClientEvent::Over { outcome, .. } => {
                    self.told.fail(format!("a stream was not refused: {outcome}"));
                }
                ClientEvent::Lost { cause: Loss::Circuit(_), .. }
                    if self.tries < TRIES && !self.told.with(|told| told.is_built) =>
                {
                    self.tries += 1;
                    self.circuit = client.open(now, &self.path);
                }
                ClientEvent::Lost { cause, .. } => {
                    self.told.fail(format!("the quiet circuit is lost: {cause}"));
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
        self.told.fail(failure);
    }
}
