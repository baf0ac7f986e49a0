//! The server from which probes download.

use super::shell::{ProbeError, machine};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, NodeThread, unix_time_s};
use onion::client::Server;
use std::net::{SocketAddr, TcpListener};

/// A [`Server`] on a separate thread, for the downloads of a [`ProbePlan`](super::ProbePlan).
/// Dropping it stops it.
///
/// Anybody who can connect receives the requested number of bytes: restrict access by the address.
#[derive(Debug)]
pub struct ProbeServer {
    address: SocketAddr,
    thread: NodeThread<Server>,
}

impl ProbeServer {
    /// Starts the server at an address in the network namespace of this thread; port 0 is any free
    /// one.
    ///
    /// # Errors
    /// [`ProbeError::Listen`] if the address is not available, else [`ProbeError::Machine`].
    pub fn start(at: SocketAddr) -> Result<Self, ProbeError> {
        let failed = |source| ProbeError::Listen { address: at, source };
        let listener = TcpListener::bind(at).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Its connections are plain; the keys are unused.
        let issuer = IdentityIssuer::new([7; 32], unix_time_s()).map_err(machine)?;
        let tls = TlsConfigs::new(&issuer).map_err(machine)?;
        let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
        let driver = Driver::new(Server::new(), Clock::start(), tls, vec![listener], options);
        let driver = Box::new(driver.map_err(machine)?);
        let thread = NodeThread::start("server", driver, ()).map_err(machine)?;
        Ok(Self { address, thread })
    }

    /// The address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.handle().call(|_| ()).is_some()
    }
}
