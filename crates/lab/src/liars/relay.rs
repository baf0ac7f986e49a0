use super::{EchoLiar, EchoLie};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Forge, ForgeError, NodeThread, ThreadError};
use onion::identity::RelayIds;
use onion::measure::load::Target;
use onion::measure::target::TargetParams;
use onion::router::{RateLimit, Router, RouterConfig, RouterEvent, RouterTotals};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::{io, iter};

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
    /// There is no thread for it, or it has broken down.
    #[error("cannot run a relay: {0}")]
    Thread(#[from] ThreadError),
    /// The operating system gives no socket.
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

/// A relay that lies, on real sockets and a thread of its own; both end with this.
#[derive(Debug)]
pub struct LiarRelay {
    address: SocketAddr,
    ids: RelayIds,
    thread: NodeThread<Router<StdRng, EchoLiar>>,
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
        let router = Router::with_behavior(config, EchoLiar::new(setup.lie), rng, clock.now());
        let tls = TlsConfigs::new(&forge)?;
        let driver = Driver::new(router, clock, tls, vec![listener], DriverOptions::default())?;
        let thread = NodeThread::start("liar", Box::new(driver), ())?;
        Ok(Self { address, ids, thread })
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

    /// What has happened since the last call: among it, what it really sent in measured seconds. Of
    /// hundreds that nobody asks for, the oldest are forgotten.
    #[must_use]
    pub fn take_events(&self) -> Vec<RouterEvent> {
        let events = self.thread.teller().ask(|drive| {
            let router = drive.node_mut();
            iter::from_fn(|| router.poll_event()).collect()
        });
        events.unwrap_or_default()
    }

    /// What it has sent so far; nothing if it has broken down.
    #[must_use]
    pub fn totals(&self) -> RouterTotals {
        self.thread.teller().ask(|drive| *drive.node().totals()).unwrap_or_default()
    }

    /// Closes its sockets and ends its thread.
    ///
    /// # Errors
    /// What broke it down meanwhile.
    pub fn stop(self) -> Result<(), LiarError> {
        Ok(self.thread.join()?)
    }
}
