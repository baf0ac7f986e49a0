mod error;

pub use error::RelayError;

use crate::accepted::Ledger;
use crate::bandwidth::Bandwidth;
use crate::config::Settings;
use crate::descriptor::TapKey;
use crate::directory::{Directory, Own, Ties, Wake};
use crate::dns::Names;
use crate::dns::health::Health;
use crate::driving::{Engine, Overseer};
use crate::event::{RelayEvent, Unfinished};
use crate::family;
use crate::keys;
use crate::metrics::{Metrics, SharedStanding, Sources};
use crate::observations::{self, ObservationWriter};
use crate::own_addresses::own_addresses;
use crate::policy::target_params;
use crate::reload::Reload;
use crate::renewal::CERTIFICATES_S;
use crate::server::Server;
use crate::state::{self, State};
use dirmgr::{Cache, ConsensusFetcher, DiffTotals, FetcherConfig};
use link::tls::TlsConfigs;
use link::{Clock, Crew, Drive, Driver, DriverOptions, Forge, NodeThread, unix_time_s};
use netdoc::Fingerprint;
use onion::Duration;
use onion::flow::control::{FlowFactory, TorFlows};
use onion::identity::{Ed25519Id, RsaId};
use onion::router::schedule::Scheduler;
use onion::router::{RateLimit, Router, RouterConfig, RouterTotals};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, RngExt, SeedableRng};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// How long certificates last.
const LIFETIME: Duration = Duration::from_secs(CERTIFICATES_S);

/// Handshakes of circuits that each thread for them has before it at most: enough that it is not waited for, few enough that
/// whose turn it is is decided late.
const HANDSHAKES_PER_WORKER: usize = 16;

/// Threads for handshakes of circuits: one for each core but one, which is for cells.
fn workers() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    cores.saturating_sub(1).clamp(1, WORKERS_MAX)
}

/// More would answer more than the thread of cells can begin circuits for.
const WORKERS_MAX: usize = 8;

/// A relay that runs on threads of its own: one that drives the engine, one that publishes.
///
/// Dropping it closes its port and all links; [`shut_down`](Self::shut_down) before lets circuits end by
/// themselves. A request to an authority that is under way is left to
/// end by itself, within its own deadline.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    rsa: RsaId,
    ed25519: Ed25519Id,
    clock: Clock,
    bandwidth: Arc<Bandwidth>,
    pub(crate) engine: NodeThread<Engine>,
    pub(crate) settings: Settings,
    /// Wakes the publishing thread, and ends it.
    wake_directory: Sender<Wake>,
    /// Serves the directory, if there is one.
    server: Option<Server>,
    /// What it serves.
    cache: Cache,
    /// Tells figures, if it is to.
    metrics: Option<Metrics>,
    /// How the name servers of an exit do.
    pub(crate) dns: Arc<Health>,
    /// Where it remembers what it carried.
    state: PathBuf,
}

impl Relay {
    /// Reads or makes the keys, listens, and begins to publish. Takes some tenths of a second.
    ///
    /// `events` gets all that there is to tell; nothing happens if nobody listens to it.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn start(settings: &Settings, events: Sender<RelayEvent>) -> Result<Self, RelayError> {
        let random = |error| RelayError::System(format!("no random bytes: {error}"));
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(random)?;
        let unix_time_s = unix_time_s();
        let keys = keys::open(&settings.keys, &mut rng)?;
        let families = family::open(&settings.keys, &settings.family_ids)?;
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut forge = Forge::new(seed, unix_time_s)?.lasting(LIFETIME);
        let certified = forge.certify(&keys)?;
        let tap = TapKey::generate(&keys, &mut rng)?;
        let (rsa, ed25519) = (certified.identity.rsa, certified.identity.ed25519);

        let listen_error = |source| RelayError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).map_err(listen_error)?;
        let port = listener.local_addr().map_err(listen_error)?.port();
        let address = SocketAddr::new(settings.address.into(), port);

        let cache = Cache::default();
        // Without authorities there is nothing to serve.
        let is_directory = settings.serves_directory && !settings.authorities.is_empty();
        let no_server = |error| RelayError::System(format!("no directory server: {error}"));
        let server = match is_directory {
            true => Some(Server::start(cache.clone()).map_err(no_server)?),
            false => None,
        };

        let descriptors = link::raise_descriptor_limit();
        let workers = workers();
        let clock = Clock::start();
        let target = target_params(&settings.flashflow, &|_| None);
        let flows: Arc<dyn FlowFactory> = match settings.hop_windows {
            None => Arc::new(TorFlows),
            Some(windows) => {
                let interval = settings.scheduler.scheduler.interval();
                Arc::new(windows.flows(interval.unwrap_or_default()))
            }
        };
        let config = RouterConfig {
            flows,
            target: target.clone(),
            limit: settings.limit,
            scheduler: settings.scheduler,
            exit: settings.exit.as_ref().map(|exit| exit.engine(&own_addresses(settings))),
            directory: server.as_ref().map(Server::address),
            addresses: vec![settings.address.into()],
            extends_to_private: settings.allows_private_addresses,
            held_bytes_max: settings.held_bytes_max,
            streams_max: RouterConfig::STREAMS_MAX.min(descriptors / 2),
            handshakes_at_once: workers * HANDSHAKES_PER_WORKER,
            ..RouterConfig::new(Arc::new(certified.identity.clone()), unix_time_s)
        };
        // Which addresses this machine has besides is nobody's business.
        let exit = settings.exit.as_ref().map(|exit| exit.engine(&[settings.address.into()]));
        let mut own_rng = StdRng::from_rng(&mut rng);
        let mut router = Router::new(config, rng, clock.now());
        let (ledger, unreadable) =
            Ledger::open(&settings.keys, target.period.as_secs()).map_err(|error| {
                RelayError::System(format!("cannot read past measurements: {error}"))
            })?;
        ledger.accepted().iter().for_each(|accepted| router.remember_measurement(*accepted));
        if unreadable > 0 {
            let problem =
                format!("{unreadable} past measurements cannot be read, and do not count");
            let _nobody_listens = events.send(RelayEvent::Trouble(problem));
        }
        let tls = TlsConfigs::new(&forge)?;
        let options = DriverOptions {
            max_conns: usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX),
            workers,
            ..DriverOptions::default()
        };
        let mut driver: Box<dyn Drive<Engine> + Send> = match settings.threads {
            NonZeroUsize::MIN => {
                Box::new(Driver::new(router, clock, tls, vec![listener], options)?)
            }
            threads => Box::new(Crew::new(router, clock, &tls, &[listener], options, threads)?),
        };
        let dns = Arc::new(Health::new(events.clone()));
        if let Some(exit) = &settings.exit {
            let names = Names::start(&exit.name_servers, Arc::clone(&dns))?;
            driver.set_resolver(Box::new(names));
        }

        let _nobody_listens = events.send(RelayEvent::TargetParams(target.clone()));
        let state = settings.keys.join(state::FILE);
        let remembered = State::load(&state).unwrap_or_else(|problem| {
            let _nobody_listens = events.send(RelayEvent::Trouble(problem));
            State::default()
        });
        let bandwidth = Arc::new(Bandwidth::new(settings.limit, remembered));
        let mut overseer =
            Overseer::new(clock.now(), Arc::clone(&bandwidth), ledger, events.clone());
        if let Some(every) = settings.observes_every {
            let relay = Fingerprint::from_bytes(rsa.0);
            let path = settings.keys.join(observations::FILE);
            let keys = keys.ed25519.to_secret_key_bytes();
            overseer.observe(ObservationWriter::new(clock.now(), every, relay, keys, path));
        }
        let engine = NodeThread::start("relay", driver, overseer)?;
        let standing = SharedStanding::default();
        let metrics = match settings.metrics {
            None => None,
            Some(address) => {
                let sources = Sources {
                    engine: engine.teller().clone(),
                    bandwidth: Arc::clone(&bandwidth),
                    standing: Arc::clone(&standing),
                    dns: Arc::clone(&dns),
                    held_bytes_max: settings.held_bytes_max,
                    descriptors_max: descriptors,
                };
                let failed = |source| RelayError::Metrics { address, source };
                Some(Metrics::start(address, sources).map_err(failed)?)
            }
        };
        let (wake_directory, wakes) = mpsc::channel();
        let config = FetcherConfig {
            authorities: settings.authorities.clone(),
            identities: settings.authority_identities.iter().copied().collect(),
            folder: settings.cache.clone(),
            first: own_rng.random_range(0..64),
        };
        let fetcher = ConsensusFetcher::for_relay(config, cache.clone(), unix_time_s);
        let onion_made = keys::onion_key_made(&settings.keys)?;
        let own = Own {
            keys,
            certified,
            certified_at: unix_time_s,
            onion_made,
            tap,
            families,
            address,
            is_directory,
            exit,
            rng: own_rng,
        };
        let teller = engine.teller().clone();
        let wake = wake_directory.clone();
        let ties = Ties { bandwidth: Arc::clone(&bandwidth), teller, events, wake, standing };
        let directory = Directory::new(settings.clone(), own, fetcher, target, clock, ties);
        let thread = thread::Builder::new().name("directory".to_owned());
        let no_thread = |error| RelayError::System(format!("no thread: {error}"));
        thread.spawn(move || directory.run(&wakes)).map_err(no_thread)?;
        let settings = settings.clone();
        Ok(Self {
            address,
            rsa,
            ed25519,
            clock,
            bandwidth,
            engine,
            settings,
            wake_directory,
            server,
            cache,
            metrics,
            dns,
            state,
        })
    }

    /// Where others reach it: the configured address with the port that it really has.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its fingerprint.
    #[must_use]
    pub const fn rsa(&self) -> RsaId {
        self.rsa
    }

    /// Its Ed25519 identity.
    #[must_use]
    pub const fn ed25519(&self) -> Ed25519Id {
        self.ed25519
    }

    /// The clock that its events' instants count by.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Where it serves its directory, on loopback; `None` if it serves none.
    #[must_use]
    pub fn directory(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Where it tells figures to Prometheus; `None` if nowhere.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Metrics::address)
    }

    /// How long circuits may go on once it is told to end.
    #[must_use]
    pub const fn shutdown_wait(&self) -> Duration {
        self.settings.shutdown_wait
    }

    pub(crate) fn tell_directory(&self, reload: Reload) {
        // If the thread has ended, it has told so.
        let _ = self.wake_directory.send(Wake::Reload(Box::new(reload)));
    }

    /// Sends no more than this from now on, and tells the authorities.
    pub fn set_limit(&self, limit: Option<RateLimit>) {
        self.bandwidth.set_limit(limit);
        self.engine.teller().tell(move |drive| {
            let now = drive.now();
            drive.node_mut().set_limit(now, limit);
        });
        // If the thread has ended, it has told so.
        let _ = self.wake_directory.send(Wake::Look);
    }

    /// Lets nothing begin any more: closes the port, refuses circuits, streams and measurements. What has
    /// begun goes on until the relay is dropped; [`RelayEvent::Drained`] tells when there is none of it left.
    /// Returns what goes on.
    pub fn shut_down(&self) -> Unfinished {
        let unfinished = self.engine.teller().ask(|drive| {
            drive.stop_listening();
            drive.node_mut().shut_down();
            Unfinished::of(drive.node())
        });
        unfinished.unwrap_or_default()
    }

    /// What has passed through it since it began.
    #[must_use]
    pub fn totals(&self) -> RouterTotals {
        self.engine.teller().ask(|drive| *drive.node().totals()).unwrap_or_default()
    }

    /// How many consensuses have come and gone as differences since it began.
    #[must_use]
    pub fn diff_totals(&self) -> DiffTotals {
        self.cache.diffs().totals()
    }

    /// What would be broken off if it were dropped now.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        let unfinished = self.engine.teller().ask(|drive| Unfinished::of(drive.node()));
        unfinished.unwrap_or_default()
    }

    /// Makes a new signing key and new certificates now, not only when they are due. Links that stand
    /// are not touched. [`RelayEvent::Renewed`] tells when it is done.
    pub fn renew_certificates(&self) {
        let _ = self.wake_directory.send(Wake::RenewCertificates);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.wake_directory.send(Wake::End);
        // Who would be told is gone as well.
        let _ = self.bandwidth.remembered().save(&self.state);
    }
}
