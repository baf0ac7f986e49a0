//! Nodes of the engine, each on a thread of this process, in the network namespace where it belongs.

use link::tls::TlsConfigs;
use link::{
    Clock, Driver, DriverError, DriverOptions, IdentityIssuer, IssueError, Namespace, NodeThread,
    Observer, ThreadError, unix_time_s,
};
use onion::identity::OwnIdentity;
use onion::node::Node;
use rand::rngs::{StdRng, SysError, SysRng};
use rand::{Rng, SeedableRng};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// Why a node or a load generator does not work.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Identities cannot be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Sockets fail.
    #[error("machine: {0}")]
    Driver(#[from] DriverError),
    /// A thread cannot be had.
    #[error("machine: {0}")]
    Thread(#[from] ThreadError),
    /// A port or a network namespace cannot be had.
    #[error("machine: {0}")]
    Machine(#[from] io::Error),
    /// There are no random bytes.
    #[error("the operating system gives no random bytes: {0}")]
    Random(SysError),
    /// Clients cannot use the relay.
    #[error("cannot play a relay's clients: {0}")]
    Clients(String),
}

/// Starts nodes, with one clock and the keys of one side of TLS.
pub struct Nodes {
    /// The clock of all of them.
    pub clock: Clock,
    issuer: IdentityIssuer,
    tls: TlsConfigs,
}

impl Nodes {
    /// With new keys.
    ///
    /// # Errors
    /// There are no random bytes, or keys cannot be made.
    pub fn new(clock: Clock) -> Result<Self, NodeError> {
        let mut seed = [0; 32];
        rng()?.fill_bytes(&mut seed);
        let issuer = IdentityIssuer::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&issuer)?;
        Ok(Self { clock, issuer, tls })
    }

    /// A new relay's identity.
    ///
    /// # Errors
    /// Keys cannot be made.
    pub fn identity(&mut self) -> Result<Arc<OwnIdentity>, NodeError> {
        Ok(Arc::new(self.issuer.identity()?))
    }

    /// Lets a node run in a namespace, or where this thread is; `watch` looks after it. It ends with what is returned.
    ///
    /// # Errors
    /// Sockets or a thread cannot be had.
    pub fn start<N: Node + Send + 'static>(
        &self,
        namespace: Option<&Namespace>,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        watch: impl Observer<N> + 'static,
    ) -> Result<NodeThread<N>, NodeError> {
        let driver = Box::new(Driver::new(node, self.clock, self.tls.clone(), listeners, options)?);
        // A thread is in the network of the one that starts it.
        let start = || NodeThread::start("node", driver, watch);
        Ok(match namespace {
            Some(namespace) => namespace.run(start)??,
            None => start()?,
        })
    }
}

/// Listens in a namespace, or where this thread is.
///
/// # Errors
/// The port or the namespace cannot be had.
pub fn listen(
    namespace: Option<&Namespace>,
    address: Ipv4Addr,
    port: u16,
) -> Result<(SocketAddr, TcpListener), NodeError> {
    let bind = || TcpListener::bind((address, port));
    let listener = match namespace {
        Some(namespace) => namespace.run(bind).flatten(),
        None => bind(),
    };
    let listener = listener?;
    Ok((listener.local_addr()?, listener))
}

/// A random generator, seeded by the operating system.
///
/// # Errors
/// There are no random bytes.
pub fn rng() -> Result<StdRng, NodeError> {
    StdRng::try_from_rng(&mut SysRng).map_err(NodeError::Random)
}
