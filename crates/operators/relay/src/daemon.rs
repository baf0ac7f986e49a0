mod error;

pub use error::RelayError;

use crate::bandwidth::Bandwidth;
use crate::config::Settings;
use crate::descriptor::TapKey;
use crate::directory::{Directory, DirectoryLinks, Own, Wake};
use crate::dns::Names;
use crate::dns::health::Health;
use crate::engine::{Engine, EngineObserver};
use crate::event::{RelayEvent, Unfinished};
use crate::family;
use crate::keys;
use crate::metrics::{SharedStatus, Sources};
use crate::observations::{self, ObservationWriter};
use crate::own_addresses::own_addresses;
use crate::policy::target_params;
use crate::quota_log::QuotaLog;
use crate::reload::Reload;
use crate::renewal::CERTIFICATES_S;
use crate::server::Server;
use crate::state::{self, State};
use dirmgr::{Cache, ConsensusFetcher, DiffTotals, FetcherConfig};
use link::tls::TlsConfigs;
use link::{
    Clock, Drive, Driver, DriverOptions, IdentityIssuer, NodeThread, ThreadedDriver, unix_time_s,
};
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

/// Validity of certificates.
const LIFETIME: Duration = Duration::from_secs(CERTIFICATES_S);

/// Limit on handshakes queued for each thread: enough to keep it busy, few enough that their order
/// is decided late.
const HANDSHAKES_PER_WORKER: usize = 16;

/// Threads for circuit handshakes: one for each core but one, which handles cells.
fn workers() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    cores.saturating_sub(1).clamp(1, WORKERS_MAX)
}

/// More threads would answer more handshakes than the engine's thread can use.
const WORKERS_MAX: usize = 8;

/// A running relay: one thread drives the engine, another talks to the authorities.
///
/// Dropping it closes its port and all links; call [`shut_down`](Self::shut_down) before to let
/// circuits finish. A pending request to an authority is not waited for.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    rsa: RsaId,
    ed25519: Ed25519Id,
    clock: Clock,
    bandwidth: Arc<Bandwidth>,
    pub(crate) engine: NodeThread<Engine>,
    pub(crate) settings: Settings,
    /// Wakes the directory thread, and ends it.
    wake_directory: Sender<Wake>,
    /// The directory server, if any.
    server: Option<Server>,
    /// The documents that it serves.
    cache: Cache,
    /// The Prometheus endpoint, if any.
    metrics: Option<metrics::Server>,
    /// Health of the exit's name servers.
    pub(crate) dns: Arc<Health>,
    /// Where the bandwidth history is stored.
    state: PathBuf,
}

impl Relay {
    /// Reads or generates the keys, listens, and starts publishing. Takes some tenths of a second.
    ///
    /// Events are sent to `events`, and dropped if there is no receiver.
    ///
    /// # Errors
    /// [`RelayError`] if a key, port, thread or setting is unusable.
    pub fn start(settings: &Settings, events: Sender<RelayEvent>) -> Result<Self, RelayError> {
        let random = |error| RelayError::System(format!("no random bytes: {error}"));
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(random)?;
        let unix_time_s = unix_time_s();
        let keys = keys::open(&settings.keys, &mut rng)?;
        let families = family::open(&settings.keys, &settings.family_ids)?;
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut issuer = IdentityIssuer::new(seed, unix_time_s)?.lasting(LIFETIME);
        let certified = issuer.certify(&keys)?;
        let tap = TapKey::generate(&keys, &mut rng)?;
        let (rsa, ed25519) = (certified.identity.rsa, certified.identity.ed25519);

        let listen_error = |source| RelayError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).map_err(listen_error)?;
        let port = listener.local_addr().map_err(listen_error)?.port();
        let address = SocketAddr::new(settings.address.into(), port);

        let cache = Cache::default();
        // Without authorities there are no documents to serve.
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
        // Other addresses of this host are not disclosed.
        let exit = settings.exit.as_ref().map(|exit| exit.engine(&[settings.address.into()]));
        let mut own_rng = StdRng::from_rng(&mut rng);
        let mut router = Router::new(config, rng, clock.now());
        let (quota_log, unreadable) = QuotaLog::open(&settings.keys, target.period.as_secs())
            .map_err(|error| {
                RelayError::System(format!("cannot read past measurements: {error}"))
            })?;
        quota_log.accepted().iter().for_each(|accepted| router.remember_measurement(*accepted));
        if unreadable > 0 {
            let problem =
                format!("{unreadable} past measurements cannot be read, and do not count");
            let _nobody_listens = events.send(RelayEvent::Trouble(problem));
        }
        let tls = TlsConfigs::new(&issuer)?;
        let options = DriverOptions {
            max_conns: usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX),
            workers,
            ..DriverOptions::default()
        };
        let mut driver: Box<dyn Drive<Engine> + Send> = match settings.threads {
            NonZeroUsize::MIN => {
                Box::new(Driver::new(router, clock, tls, vec![listener], options)?)
            }
            threads => {
                Box::new(ThreadedDriver::new(router, clock, &tls, &[listener], options, threads)?)
            }
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
        let (wake_directory, wakes) = mpsc::channel();
        let mut observer = EngineObserver::new(
            clock.now(),
            Arc::clone(&bandwidth),
            quota_log,
            events.clone(),
            wake_directory.clone(),
        );
        if let Some(every) = settings.observes_every {
            let path = settings.keys.join(observations::FILE);
            let key = keys.ed25519.clone();
            observer.observe(ObservationWriter::new(clock.now(), every, rsa, key, path));
        }
        let engine = NodeThread::start("relay", driver, observer)?;
        let status = SharedStatus::default();
        let metrics = match settings.metrics {
            None => None,
            Some(address) => {
                let sources = Sources {
                    engine: engine.handle().clone(),
                    bandwidth: Arc::clone(&bandwidth),
                    status: Arc::clone(&status),
                    dns: Arc::clone(&dns),
                    held_bytes_max: settings.held_bytes_max,
                    descriptors_max: descriptors,
                };
                let failed = |source| RelayError::Metrics { address, source };
                Some(metrics::Server::start(address, move || sources.text()).map_err(failed)?)
            }
        };
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
        let engine_handle = engine.handle().clone();
        let wake = wake_directory.clone();
        let links = DirectoryLinks {
            bandwidth: Arc::clone(&bandwidth),
            engine: engine_handle,
            events,
            wake,
            status,
        };
        let directory = Directory::new(settings.clone(), own, fetcher, target, clock, links);
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

    /// Its configured address, with the actual port.
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

    /// The clock of its events.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// The loopback address of its directory server; `None` if there is none.
    #[must_use]
    pub fn directory(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// The address of its Prometheus endpoint; `None` if there is none.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(metrics::Server::address)
    }

    /// Time limit for existing circuits at shutdown.
    #[must_use]
    pub const fn shutdown_wait(&self) -> Duration {
        self.settings.shutdown_wait
    }

    pub(crate) fn reload_directory(&self, reload: Reload) {
        // If the thread has ended, an event has reported it.
        let _ = self.wake_directory.send(Wake::Reload(Box::new(reload)));
    }

    /// Changes the rate limit, and publishes it.
    pub fn set_limit(&self, limit: Option<RateLimit>) {
        self.bandwidth.set_limit(limit);
        self.engine.handle().run(move |drive| {
            let now = drive.now();
            drive.node_mut().set_limit(now, limit);
        });
        // If the thread has ended, an event has reported it.
        let _ = self.wake_directory.send(Wake::Look);
    }

    /// Starts a graceful shutdown: closes the port, and refuses circuits, streams and measurements.
    /// Existing ones continue until the relay is dropped; [`RelayEvent::Drained`] reports when none
    /// are left. Returns their numbers.
    pub fn shut_down(&self) -> Unfinished {
        let unfinished = self.engine.handle().call(|drive| {
            drive.stop_listening();
            drive.node_mut().shut_down();
            Unfinished::from_engine(drive.node())
        });
        unfinished.unwrap_or_default()
    }

    /// Totals since start.
    #[must_use]
    pub fn totals(&self) -> RouterTotals {
        self.engine.handle().call(|drive| *drive.node().totals()).unwrap_or_default()
    }

    /// Consensus diffs since start.
    #[must_use]
    pub fn diff_totals(&self) -> DiffTotals {
        self.cache.diffs().totals()
    }

    /// What would be aborted if the relay were dropped now.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        let unfinished = self.engine.handle().call(|drive| Unfinished::from_engine(drive.node()));
        unfinished.unwrap_or_default()
    }

    /// Renews the signing key and certificates now instead of when they are due. Open links are not
    /// affected. [`RelayEvent::Renewed`] reports completion.
    pub fn renew_certificates(&self) {
        let _ = self.wake_directory.send(Wake::RenewCertificates);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Ignored if the thread has ended.
        let _ = self.wake_directory.send(Wake::End);
        // The event's receiver is gone as well.
        let _ = self.bandwidth.remembered().save(&self.state);
    }
}
