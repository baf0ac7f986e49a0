//! Nodes of the engine, each on a thread of this process, in the network namespace where it belongs.

use crate::error::{Error, Result};
use link::tls::TlsConfigs;
use link::{
    Clock, Driver, DriverOptions, IdentityIssuer, Namespace, NodeThread, Observer, unix_time_s,
};
use onion::identity::OwnIdentity;
use onion::node::Node;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// Starts nodes, with one clock and the keys of one side of TLS.
pub(crate) struct Nodes {
    pub(crate) clock: Clock,
    issuer: IdentityIssuer,
    tls: TlsConfigs,
}

impl Nodes {
    pub(crate) fn new(clock: Clock) -> Result<Self> {
        let mut seed = [0; 32];
        rng()?.fill_bytes(&mut seed);
        let issuer = IdentityIssuer::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&issuer)?;
        Ok(Self { clock, issuer, tls })
    }

    /// A new relay's identity.
    pub(crate) fn identity(&mut self) -> Result<Arc<OwnIdentity>> {
        Ok(Arc::new(self.issuer.identity()?))
    }

    /// Lets a node run in a namespace, or where this thread is; `watch` looks after it. It ends with what is returned.
    pub(crate) fn start<N: Node + Send + 'static>(
        &self,
        namespace: Option<&Namespace>,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        watch: impl Observer<N> + 'static,
    ) -> Result<NodeThread<N>> {
        let driver = Box::new(Driver::new(node, self.clock, self.tls.clone(), listeners, options)?);
        // A thread is in the network of the one that starts it.
        let start = || NodeThread::start("node", driver, watch);
        Ok(match namespace {
            Some(namespace) => namespace.run(start).map_err(broken)??,
            None => start()?,
        })
    }
}

/// Listens in a namespace, or where this thread is.
pub(crate) fn listen(
    namespace: Option<&Namespace>,
    address: Ipv4Addr,
    port: u16,
) -> Result<(SocketAddr, TcpListener)> {
    let bind = || TcpListener::bind((address, port));
    let listener = match namespace {
        Some(namespace) => namespace.run(bind).flatten(),
        None => bind(),
    };
    let listener = listener.map_err(broken)?;
    Ok((listener.local_addr().map_err(broken)?, listener))
}

/// A random generator, seeded by the operating system.
pub(crate) fn rng() -> Result<StdRng> {
    StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))
}

/// That something that plays a part in an experiment does not work.
pub(crate) fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}
