//! Nodes of the engine, each on a thread of this process, in its network namespace.

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

/// The reason that a node or a load generator does not work.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Identities cannot be created.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Sockets fail.
    #[error("machine: {0}")]
    Driver(#[from] DriverError),
    /// A thread cannot be started.
    #[error("machine: {0}")]
    Thread(#[from] ThreadError),
    /// A port or a network namespace is unavailable.
    #[error("machine: {0}")]
    Machine(#[from] io::Error),
    /// There are no random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(SysError),
    /// Clients cannot use the relay.
    #[error("cannot generate client traffic: {0}")]
    Clients(String),
}

/// Starts nodes that share a clock and TLS keys.
pub struct Nodes {
    /// The clock of all nodes.
    pub clock: Clock,
    issuer: IdentityIssuer,
    tls: TlsConfigs,
}

impl Nodes {
    /// Creates new keys.
    ///
    /// # Errors
    /// The operating system provides no random bytes, or keys cannot be created.
    pub fn new(clock: Clock) -> Result<Self, NodeError> {
        let mut seed = [0; 32];
        rng()?.fill_bytes(&mut seed);
        let issuer = IdentityIssuer::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&issuer)?;
        Ok(Self { clock, issuer, tls })
    }

    /// Creates the identity of a new relay.
    ///
    /// # Errors
    /// Keys cannot be created.
    pub fn identity(&mut self) -> Result<Arc<OwnIdentity>, NodeError> {
        Ok(Arc::new(self.issuer.identity()?))
    }

    /// Runs a node in a namespace, or in that of this thread, with an observer. The node ends when the returned
    /// value is dropped.
    ///
    /// # Errors
    /// The operating system refuses sockets or a thread.
    pub fn start<N: Node + Send + 'static>(
        &self,
        namespace: Option<&Namespace>,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        observer: impl Observer<N> + 'static,
    ) -> Result<NodeThread<N>, NodeError> {
        let driver = Box::new(Driver::new(node, self.clock, self.tls.clone(), listeners, options)?);
        // A thread inherits the network namespace of the thread that starts it.
        let start = || NodeThread::start("node", driver, observer);
        Ok(match namespace {
            Some(namespace) => namespace.run(start)??,
            None => start()?,
        })
    }
}

/// Listens in a namespace, or in that of this thread.
///
/// # Errors
/// The port or the namespace is unavailable.
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
