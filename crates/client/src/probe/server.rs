//! What probes download from.

use super::shell::{ProbeError, machine};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Forge, NodeThread, unix_time_s};
use onion::client::Server;
use std::net::{SocketAddr, TcpListener};

/// A [`Server`] on a thread of its own, for the downloads of a [`ProbePlan`](super::ProbePlan). It ends with this value.
///
/// Whoever can connect gets as many bytes as he asks for: where it listens is the protection.
#[derive(Debug)]
pub struct ProbeServer {
    address: SocketAddr,
    thread: NodeThread<Server>,
}

impl ProbeServer {
    /// Starts it at an address of the network that this thread is in; port 0 is any that is free.
    ///
    /// # Errors
    /// [`ProbeError::Listen`] if nothing can listen there, else [`ProbeError::Machine`].
    pub fn start(at: SocketAddr) -> Result<Self, ProbeError> {
        let failed = |source| ProbeError::Listen { address: at, source };
        let listener = TcpListener::bind(at).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Connections to it are plain: the keys are for nobody.
        let forge = Forge::new([7; 32], unix_time_s()).map_err(machine)?;
        let tls = TlsConfigs::new(&forge).map_err(machine)?;
        let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
        let driver = Driver::new(Server::new(), Clock::start(), tls, vec![listener], options);
        let driver = Box::new(driver.map_err(machine)?);
        let thread = NodeThread::start("server", driver, ()).map_err(machine)?;
        Ok(Self { address, thread })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it still serves.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.teller().ask(|_| ()).is_some()
    }
}
