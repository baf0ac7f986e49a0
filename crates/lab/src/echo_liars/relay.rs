use super::{EchoLie, Liar};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Forge, ForgeError, Remote};
use onion::Duration;
use onion::identity::RelayIds;
use onion::measure::pump::Target;
use onion::measure::target::TargetParams;
use onion::router::{RateLimit, Router, RouterConfig, RouterEvent, RouterTotals};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Events that wait to be asked for, at most; then the oldest is forgotten.
const EVENTS_MAX: usize = 4096;

/// Somebody who lies could not be started, or has broken down.
#[derive(Debug, thiserror::Error)]
pub enum LiarError {
    /// Its identity could not be made.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The operating system fails its driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There is no link to a relay.
    #[error("no link to the relay: {0}")]
    NoLink(String),
    /// A measurement in virtual time came to nothing.
    #[error("cannot play a forger: {0}")]
    World(String),
    /// The operating system gives no socket or thread.
    #[error("cannot run a relay: {0}")]
    Io(#[from] io::Error),
}

/// What a lying relay shall be.
#[derive(Clone, Debug)]
pub struct LiarSetup {
    /// Its lie; `None` for an honest relay, to compare with.
    pub lie: Option<EchoLie>,
    /// Where it listens; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Who may measure it.
    pub target: TargetParams,
    /// How much it sends.
    pub limit: Option<RateLimit>,
    /// Decides its keys and all its random choices: not for the public network.
    pub seed: [u8; 32],
    /// The time, in seconds since 1970, for its certificates and for orders.
    pub unix_time_s: u64,
}

/// What the relay's thread shares.
#[derive(Debug, Default)]
struct Shared {
    must_stop: AtomicBool,
    told: Mutex<(VecDeque<RouterEvent>, RouterTotals)>,
}

/// A relay that lies, on real sockets and a thread of its own; both end with this.
#[derive(Debug)]
pub struct LiarRelay {
    address: SocketAddr,
    ids: RelayIds,
    shared: Arc<Shared>,
    remote: Remote,
    thread: Option<JoinHandle<Result<(), DriverError>>>,
}

impl LiarRelay {
    /// Makes its keys, which takes some tenths of a second, and lets it listen.
    ///
    /// # Errors
    /// [`LiarError`]: keys, sockets or the thread cannot be had.
    pub fn start(setup: LiarSetup) -> Result<Self, LiarError> {
        let mut forge = Forge::new(setup.seed, setup.unix_time_s)?;
        let identity = Arc::new(forge.identity()?);
        let ids = identity.ids();
        let listener = TcpListener::bind(setup.listen)?;
        let address = listener.local_addr()?;
        let config = RouterConfig {
            target: setup.target,
            limit: setup.limit,
            ..RouterConfig::new(identity, setup.unix_time_s)
        };
        let clock = Clock::start();
        let rng = StdRng::from_seed(setup.seed);
        let router = Router::with_conduct(config, Liar::new(setup.lie), rng, clock.now());
        let tls = TlsConfigs::new(&forge)?;
        let driver = Driver::new(router, clock, tls, vec![listener], DriverOptions::default())?;
        let remote = driver.remote();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("liar".to_string())
            .spawn(move || run(driver, &theirs))?;
        Ok(Self { address, ids, shared, remote, thread: Some(thread) })
    }

    /// Where it listens, and who it is: what measures it.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { address: self.address, ids: self.ids }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is.
    #[must_use]
    pub const fn ids(&self) -> RelayIds {
        self.ids
    }

    /// What has happened since the last call: among it, what it really sent in measured seconds.
    #[must_use]
    pub fn take_events(&self) -> Vec<RouterEvent> {
        self.told().0.drain(..).collect()
    }

    /// What it has sent so far.
    #[must_use]
    pub fn totals(&self) -> RouterTotals {
        self.told().1
    }

    /// Closes its sockets and ends its thread.
    ///
    /// # Errors
    /// What broke it down meanwhile.
    pub fn stop(mut self) -> Result<(), LiarError> {
        self.end()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, (VecDeque<RouterEvent>, RouterTotals)> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&mut self) -> Result<(), LiarError> {
        self.shared.must_stop.store(true, Ordering::Release);
        self.remote.wake();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => Ok(outcome?),
            Some(Err(_)) => Err(io::Error::other("its thread has panicked").into()),
            None => Ok(()),
        }
    }
}

impl Drop for LiarRelay {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}

fn run(mut driver: Driver<Router<StdRng, Liar>>, shared: &Shared) -> Result<(), DriverError> {
    while !shared.must_stop.load(Ordering::Acquire) {
        let soon = driver.now() + Duration::from_secs(1);
        driver.turn(soon)?;
        let mut told = shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.1 = *driver.node().totals();
        while let Some(event) = driver.node_mut().poll_event() {
            if told.0.len() == EVENTS_MAX {
                told.0.pop_front();
            }
            told.0.push_back(event);
        }
    }
    Ok(())
}
