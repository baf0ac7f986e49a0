use crate::cache::Cache;
use crate::config::Settings;
use crate::descriptor::{DescriptorError, TapKey};
use crate::directory::{Directory, Own, Ties};
use crate::dns::{Names, NoNames};
use crate::event::{Load, RelayEvent};
use crate::following::Following;
use crate::history::History;
use crate::keys::{self, KeyError};
use crate::observed::Observed;
use crate::policy::target_params;
use crate::renewal::CERTIFICATES_S;
use crate::server::Server;
use link::tls::TlsConfigs;
use link::{
    Clock, Crew, Drive, Driver, DriverError, DriverOptions, Forge, ForgeError, Remote, Traffic,
    unix_time_s,
};
use onion::identity::{Ed25519Id, OwnIdentity, RsaId};
use onion::measure::target::TargetParams;
use onion::router::{KnownRelays, Parameters, RateLimit, Router, RouterConfig};
use onion::{Duration, Instant};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, RngExt, SeedableRng};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

/// How long certificates last.
const LIFETIME: Duration = Duration::from_secs(CERTIFICATES_S);
/// How often passing bytes are counted.
const SECOND: Duration = Duration::from_secs(1);
/// Seconds that are counted one by one after a pause, at most.
const SECONDS_MAX: u64 = 100;

/// Why a relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Its keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Its certificates.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// Its descriptor.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Its port.
    #[error(
        "machine: cannot listen on {address}: {source}. Is another relay running there? Choose \
         another `or_port` (0 for any), or set `listen` to an address of this machine"
    )]
    Listen {
        /// Where it should listen.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Its driver, or a thread.
    #[error("machine: {0}")]
    Driver(#[from] DriverError),
    /// Names for exits.
    #[error(transparent)]
    Names(#[from] NoNames),
    /// The operating system gives no thread or no random bytes.
    #[error("machine: {0}")]
    System(String),
}

/// What the threads of a relay have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limit: Mutex<Option<RateLimit>>,
    /// The observed bandwidth, in bytes/s.
    pub(crate) observed_bytes_s: AtomicU64,
    pub(crate) history: Mutex<History>,
}

impl Shared {
    pub(crate) fn limit(&self) -> Option<RateLimit> {
        // Nobody panics while holding it.
        *self.limit.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The lines about what was carried, for an extra-info document.
    pub(crate) fn history_lines(&self, rate_bytes_s: u64) -> String {
        self.history().lines(rate_bytes_s)
    }
}

/// What the driver's thread is told.
#[derive(Debug)]
pub(crate) enum Command {
    Limit(Option<RateLimit>),
    Target(TargetParams),
    Parameters(Parameters),
    Relays(KnownRelays),
    /// Other keys or certificates; with another TLS certificate if it is another one.
    Identity(Arc<OwnIdentity>, Option<TlsConfigs>),
    Stop,
}

/// Why the directory's thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Something has changed that a descriptor has in it.
    Look,
    RenewCertificates,
}

/// Tells the driver's thread something, now.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    commands: Sender<Command>,
    remote: Remote,
}

impl Teller {
    pub(crate) fn tell(&self, command: Command) {
        // If the thread has ended, it has told so.
        let _ = self.commands.send(command);
        self.remote.wake();
    }
}

/// A relay that runs on threads of its own: one that drives the engine, one that publishes.
///
/// Dropping it closes its port and all links. A request to an authority that is under way is left to
/// end by itself, within its own deadline.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    rsa: RsaId,
    ed25519: Ed25519Id,
    shared: Arc<Shared>,
    teller: Teller,
    /// Wakes the publishing thread; its end ends that.
    wake_directory: Sender<Wake>,
    /// Serves the directory, if there is one.
    server: Option<Server>,
    driver: Option<JoinHandle<()>>,
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
        let clock = Clock::start();
        let target = target_params(&settings.flashflow, &|_| None);
        let config = RouterConfig {
            target: target.clone(),
            limit: settings.limit,
            scheduler: settings.scheduler,
            exit: settings.exit.as_ref().map(|exit| exit.engine(settings.address)),
            directory: server.as_ref().map(Server::address),
            addresses: vec![settings.address.into()],
            extends_to_private: settings.allows_private_addresses,
            streams_max: RouterConfig::STREAMS_MAX.min(descriptors / 2),
            ..RouterConfig::new(Arc::new(certified.identity.clone()), unix_time_s)
        };
        let exit = config.exit.clone();
        let mut own_rng = StdRng::from_rng(&mut rng);
        let router = Router::new(config, rng, clock.now());
        let tls = TlsConfigs::new(&forge)?;
        let options = DriverOptions {
            max_conns: usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX),
            ..DriverOptions::default()
        };
        let mut driver: Box<dyn Drive<Router<StdRng>> + Send> = match settings.threads {
            NonZeroUsize::MIN => {
                Box::new(Driver::new(router, clock, tls, vec![listener], options)?)
            }
            threads => Box::new(Crew::new(router, clock, &tls, &[listener], options, threads)?),
        };
        if let Some(exit) = &settings.exit {
            driver.set_resolver(Box::new(Names::start(&exit.name_servers)?));
        }

        let (commands, orders) = mpsc::channel();
        let teller = Teller { commands, remote: driver.remote() };
        let shared = Arc::new(Shared {
            limit: Mutex::new(settings.limit),
            observed_bytes_s: AtomicU64::new(0),
            history: Mutex::default(),
        });
        let _nobody_listens = events.send(RelayEvent::TargetParams(target.clone()));
        let (wake_directory, wakes) = mpsc::channel();
        let following = Following::new(
            settings.authorities.clone(),
            settings.authority_identities.iter().copied().collect(),
            settings.cache.clone(),
            cache,
            unix_time_s,
            own_rng.random_range(0..64),
        );
        let onion_made = keys::onion_key_made(&settings.keys)?;
        let own = Own {
            keys,
            certified,
            certified_at: unix_time_s,
            onion_made,
            tap,
            address,
            is_directory,
            exit,
            rng: own_rng,
        };
        let ties =
            Ties { shared: Arc::clone(&shared), teller: teller.clone(), events: events.clone() };
        let directory = Directory::new(settings.clone(), own, following, target, clock, ties);
        spawn("directory", move || directory.run(&wakes))?;
        let of_driver = Arc::clone(&shared);
        let driver = spawn("relay", move || drive(&mut *driver, &orders, &of_driver, &events))?;
        let driver = Some(driver);
        Ok(Self { address, rsa, ed25519, shared, teller, wake_directory, server, driver })
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

    /// Where it serves its directory, on loopback; `None` if it serves none.
    #[must_use]
    pub fn directory(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Sends no more than this from now on, and tells the authorities.
    pub fn set_limit(&self, limit: Option<RateLimit>) {
        *self.shared.limit.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = limit;
        self.teller.tell(Command::Limit(limit));
        // If the thread has ended, it has told so.
        let _ = self.wake_directory.send(Wake::Look);
    }

    /// Makes a new signing key and new certificates now, not only when they are due. Links that stand
    /// are not touched. [`RelayEvent::Renewed`] tells when it is done.
    pub fn renew_certificates(&self) {
        let _ = self.wake_directory.send(Wake::RenewCertificates);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.teller.tell(Command::Stop);
        if let Some(driver) = self.driver.take() {
            // A panic there has been told as an event.
            let _ = driver.join();
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, RelayError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map_err(|error| RelayError::System(format!("no thread: {error}")))
}

/// Drives the engine until it is told to stop, or nobody is left who could.
fn drive(
    driver: &mut dyn Drive<Router<StdRng>>,
    orders: &Receiver<Command>,
    shared: &Shared,
    events: &Sender<RelayEvent>,
) {
    let mut meter = Meter::new(driver.now());
    loop {
        loop {
            let now = driver.now();
            match orders.try_recv() {
                Ok(Command::Limit(limit)) => driver.node_mut().set_limit(now, limit),
                Ok(Command::Target(params)) => driver.node_mut().set_target_params(params),
                Ok(Command::Parameters(parameters)) => driver.node_mut().set_parameters(parameters),
                Ok(Command::Relays(relays)) => driver.node_mut().set_relays(relays),
                Ok(Command::Identity(identity, tls)) => {
                    driver.node_mut().set_identity(identity);
                    if let Some(tls) = tls {
                        driver.set_tls(tls);
                    }
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => break,
            }
        }
        if let Err(error) = driver.turn(meter.next) {
            let _nobody_listens = events.send(RelayEvent::Ended(error.to_string()));
            return;
        }
        while let Some(event) = driver.node_mut().poll_event() {
            let _nobody_listens = events.send(RelayEvent::Router(event));
        }
        let looked = meter.look(driver.now(), *driver.traffic(), |received, sent| {
            shared.history().note_second(unix_time_s(), received, sent);
        });
        if let Some(bytes_s) = looked {
            shared.observed_bytes_s.store(bytes_s, Ordering::Relaxed);
            let now = driver.now();
            driver.node_mut().set_unix_time(now, unix_time_s());
            let router = driver.node();
            let client_bytes = router.totals().client_bytes;
            let load = Load { client_bytes, waited_cell_s: router.waited_cell_s() };
            let _nobody_listens = events.send(RelayEvent::Load(load));
        }
    }
}

/// Counts what passes in each second.
struct Meter {
    observed: Observed,
    before: Traffic,
    next: Instant,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { observed: Observed::default(), before: Traffic::default(), next: now + SECOND }
    }

    /// The observed bandwidth, once a second.
    ///
    /// `each` gets what was received and sent in each second.
    fn look(
        &mut self,
        now: Instant,
        traffic: Traffic,
        mut each: impl FnMut(u64, u64),
    ) -> Option<u64> {
        if now < self.next {
            return None;
        }
        // A thread that got no processor for seconds counts their bytes as evenly spread: taken for
        // one second's, they would look like a speed that never was.
        let seconds = 1 + (now - self.next).as_secs();
        let received = (traffic.received_bytes - self.before.received_bytes) / seconds;
        let sent = (traffic.sent_bytes - self.before.sent_bytes) / seconds;
        for _ in 0..seconds.min(SECONDS_MAX) {
            self.observed.note_second(received, sent);
            each(received, sent);
        }
        self.before = traffic;
        self.next += Duration::from_secs(seconds);
        Some(self.observed.bytes_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_were_slept_through_do_not_look_like_a_burst() {
        let at = |millis| Instant::from_millis(millis);
        let traffic =
            |bytes| Traffic { received_bytes: bytes, sent_bytes: bytes, ..Traffic::default() };
        let mut meter = Meter::new(at(0));
        let ignore = |_, _| {};
        assert_eq!(meter.look(at(999), traffic(10), ignore), None);
        for second in 1..=9 {
            assert_eq!(meter.look(at(second * 1000), traffic(second * 100), ignore), Some(0));
        }
        // Five seconds, of which four were not looked at.
        assert_eq!(meter.look(at(14_500), traffic(1_400), ignore), Some(100));
        assert_eq!(meter.next, at(15_000));
        assert_eq!(meter.look(at(15_000), traffic(2_500), ignore), Some(200));
        // A machine that slept for a month is not counted second by second.
        assert_eq!(meter.look(at(2_600_000_000), traffic(2_500), ignore), Some(200));
        assert_eq!(meter.next, at(2_600_001_000));
    }
}
