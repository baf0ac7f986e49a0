//! A circuit with next to nothing on it, through a relay that is busy with others: how long is its
//! round trip?

use crate::error::Error;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Forge, Remote, unix_time_s};
use onion::cell::msg::BeginFlags;
use onion::circuit::NextHop;
use onion::client::{Client, ClientEvent, Destination, Loss, Outcome, Path, Transfer};
use onion::measure::pump::Target;
use onion::router::schedule::SchedulerConfig;
use onion::router::{Router, RouterConfig};
use onion::{Duration, Instant};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// From one round trip's end to the next one's begin.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for the circuit to stand.
const SETUP: Duration = Duration::from_secs(30);

/// How often it is tried. Stock tor looks at its circuits every second and ends each that goes no
/// further on a client's connection on which nothing was sent for a minute; to it, a connection whose
/// first answer is still queued is one of these.
const TRIES: u32 = 5;

/// A quiet circuit of two hops, for as long as this lives: through a relay, to one of ours that
/// refuses its streams.
pub(super) struct QuietCircuit {
    shared: Arc<Shared>,
    remotes: Vec<Remote>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    must_stop: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    is_built: bool,
    failure: Option<String>,
    round_trips: Vec<(Instant, Duration)>,
}

impl Shared {
    fn with<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fail(&self, problem: impl ToString) {
        self.with(|told| _ = told.failure.get_or_insert(problem.to_string()));
    }
}

fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}

impl QuietCircuit {
    /// Builds it; `clock` dates its round trips.
    pub(super) fn start(target: Target, clock: Clock) -> Result<Self, Error> {
        let mut rng =
            StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))?;
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut forge = Forge::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&forge)?;
        let identity = Arc::new(forge.identity()?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(broken)?;
        let landing = NextHop::to_own(&identity, listener.local_addr().map_err(broken)?);
        // What is at the end is to add as little as can be.
        let scheduler = SchedulerConfig::vanilla();
        let config = RouterConfig { scheduler, ..RouterConfig::new(identity, unix_time_s()) };
        let router = Router::new(config, StdRng::from_rng(&mut rng), clock.now());
        let options = DriverOptions::default();
        let router = Driver::new(router, clock, tls.clone(), vec![listener], options)?;

        // By CREATE_FAST the first hop's onion key is not needed.
        let first = NextHop { address: target.address, ids: target.ids, onion_key: [0; 32] };
        let path = Path { is_fast: true, ..Path::new(vec![first, landing]) };
        let client = Client::new(unix_time_s(), rng);
        let client = Driver::new(client, clock, tls, Vec::new(), options)?;

        let shared = Arc::new(Shared::default());
        let remotes = vec![router.remote(), client.remote()];
        let (of_router, of_client) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            spawn("landing", &shared, move || serve(router, &of_router))?,
            spawn("quiet", &shared, move || ask(client, &path, &of_client))?,
        ];
        let quiet = Self { shared, remotes, threads };
        let deadline = clock.now() + SETUP;
        loop {
            let (is_built, failure) =
                quiet.shared.with(|told| (told.is_built, told.failure.clone()));
            match failure {
                Some(failure) => return Err(broken(failure)),
                None if is_built => return Ok(quiet),
                None if clock.now() > deadline => {
                    return Err(broken("the quiet circuit does not stand in time"));
                }
                None => thread::park_timeout(PAUSE),
            }
        }
    }

    /// The round trips that ended between two instants.
    pub(super) fn round_trips(&self, from: Instant, to: Instant) -> Result<Vec<Duration>, Error> {
        self.shared.with(|told| {
            if let Some(failure) = &told.failure {
                return Err(broken(failure));
            }
            let within = told.round_trips.iter().filter(|(at, _)| (from..=to).contains(at));
            Ok(within.map(|(_, took)| *took).collect())
        })
    }
}

impl Drop for QuietCircuit {
    fn drop(&mut self) {
        self.shared.must_stop.store(true, Ordering::Release);
        self.remotes.iter().for_each(Remote::wake);
        for thread in self.threads.drain(..) {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    body: impl FnOnce() -> Result<(), DriverError> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let shared = Arc::clone(shared);
    let run = move || body().unwrap_or_else(|error| shared.fail(error));
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(broken)
}

fn serve(mut router: Driver<Router<StdRng>>, shared: &Shared) -> Result<(), DriverError> {
    while !shared.must_stop.load(Ordering::Acquire) {
        let later = router.now() + Duration::from_secs(1);
        router.turn(later)?;
    }
    Ok(())
}

fn ask(
    mut driver: Driver<Client<StdRng>>,
    path: &Path,
    shared: &Shared,
) -> Result<(), DriverError> {
    let now = driver.now();
    let mut circuit = driver.node_mut().open(now, path);
    let (mut next, mut tries) = (None, 1);
    while !shared.must_stop.load(Ordering::Acquire) {
        let now = driver.now();
        if next.is_some_and(|next| next <= now) {
            next = None;
            let to = Destination::Host("192.0.2.1".to_owned(), 80, BeginFlags::default());
            driver.node_mut().begin(now, circuit, to, Transfer::download(0, 0));
        }
        driver.turn(next.unwrap_or(now + Duration::from_secs(1)))?;
        let now = driver.now();
        while let Some(event) = driver.node_mut().poll_event() {
            match event {
                ClientEvent::Built { .. } => {
                    shared.with(|told| told.is_built = true);
                    next = Some(now);
                }
                ClientEvent::Over { outcome: Outcome::Ended(_), figures, .. } => {
                    shared.with(|told| told.round_trips.push((now, figures.to_last())));
                    next = Some(now + PAUSE);
                }
                ClientEvent::Over { outcome, .. } => {
                    shared.fail(format!("a stream was not refused: {outcome:?}"));
                }
                ClientEvent::Lost { cause: Loss::Circuit(_), .. }
                    if tries < TRIES && !shared.with(|told| told.is_built) =>
                {
                    tries += 1;
                    circuit = driver.node_mut().open(now, path);
                }
                ClientEvent::Lost { cause, .. } => shared.fail(lost(&cause)),
            }
        }
    }
    Ok(())
}

fn lost(cause: &Loss) -> String {
    format!("the quiet circuit is lost: {cause}")
}
