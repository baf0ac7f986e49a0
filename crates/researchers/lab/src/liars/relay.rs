use super::{EchoLiar, EchoLie};
use link::tls::TlsConfigs;
use link::{
    Clock, Driver, DriverError, DriverOptions, IdentityIssuer, IssueError, NodeThread, ThreadError,
};
use onion::identity::RelayIds;
use onion::measure::load::Target;
use onion::measure::target::TargetParams;
use onion::router::{RateLimit, Router, RouterConfig, RouterEvent, RouterTotals};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::{io, iter};

/// A lying relay could not be started, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum LiarError {
    /// Its identity could not be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Its sockets failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A measurement in virtual time failed.
    #[error("a measurement in virtual time failed: {0}")]
    Simulation(String),
    /// Its thread could not be started, or has failed.
    #[error("cannot run a relay: {0}")]
    Thread(#[from] ThreadError),
    /// The operating system returned no socket.
    #[error("cannot run a relay: {0}")]
    Io(#[from] io::Error),
}

/// The configuration of a lying relay.
#[derive(Clone, Debug)]
pub struct LiarSetup {
    /// Its lie; `None` for an honest relay, for comparison.
    pub lie: Option<EchoLie>,
    /// The address to listen on; port 0 for any free port.
    pub listen: SocketAddr,
    /// Who may measure it.
    pub target: TargetParams,
    /// The rate limit.
    pub limit: Option<RateLimit>,
    /// Seeds its keys and all its random choices: not for the public network.
    pub seed: [u8; 32],
    /// The Unix time in seconds, for its certificates and for orders.
    pub unix_time_s: u64,
}

/// A lying relay on real sockets and its own thread; both end with this value.
#[derive(Debug)]
pub struct LiarRelay {
    address: SocketAddr,
    ids: RelayIds,
    thread: NodeThread<Router<StdRng, EchoLiar>>,
}

impl LiarRelay {
    /// Creates its keys, which takes some tenths of a second, and starts it.
    ///
    /// # Errors
    /// [`LiarError`]: keys, sockets or the thread could not be created.
    pub fn start(setup: LiarSetup) -> Result<Self, LiarError> {
        let mut issuer = IdentityIssuer::new(setup.seed, setup.unix_time_s)?;
        let identity = Arc::new(issuer.identity()?);
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
        let tls = TlsConfigs::new(&issuer)?;
        let driver = Driver::new(router, clock, tls, vec![listener], DriverOptions::default())?;
        let thread = NodeThread::start("liar", Box::new(driver), ())?;
        Ok(Self { address, ids, thread })
    }

    /// Its address and identities, as a target.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { address: self.address, ids: self.ids }
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its identities.
    #[must_use]
    pub const fn ids(&self) -> RelayIds {
        self.ids
    }

    /// The events since the last call, including the traffic that was actually sent in measured seconds. Only the
    /// latest several hundred are kept.
    #[must_use]
    pub fn take_events(&self) -> Vec<RouterEvent> {
        let events = self.thread.handle().call(|drive| {
            let router = drive.node_mut();
            iter::from_fn(|| router.poll_event()).collect()
        });
        events.unwrap_or_default()
    }

    /// The bytes sent so far; zero if it has failed.
    #[must_use]
    pub fn totals(&self) -> RouterTotals {
        self.thread.handle().call(|drive| *drive.node().totals()).unwrap_or_default()
    }

    /// Closes its sockets and ends its thread.
    ///
    /// # Errors
    /// The failure that ended it earlier.
    pub fn stop(self) -> Result<(), LiarError> {
        Ok(self.thread.join()?)
    }
}
