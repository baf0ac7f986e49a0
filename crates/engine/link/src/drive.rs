use crate::driver::{Driver, DriverError, Resolver, Traffic, Waker};
use crate::sockopt::TcpAccount;
use crate::tls::TlsConfigs;
use onion::Instant;
use onion::node::{ConnId, Node};

/// Runs a node over real sockets: a [`Driver`] serves them on its own thread, a
/// [`ThreadedDriver`](crate::ThreadedDriver) on several.
pub trait Drive<N> {
    /// The node.
    fn node(&self) -> &N;

    /// The node, for commands. The next [`turn`](Self::turn) carries them out.
    fn node_mut(&mut self) -> &mut N;

    /// The current time on the node's clock.
    fn now(&self) -> Instant;

    /// Plaintext transferred so far.
    fn traffic(&self) -> &Traffic;

    /// Reads kernel counters of each open connection, with one system call each. Connections
    /// without counters are skipped.
    fn tcp_accounts(&self, each: &mut dyn FnMut(ConnId, TcpAccount));

    /// A handle with which other threads wake this driver.
    fn waker(&self) -> Waker;

    /// Sets the resolver for DNS queries of the node. Without a resolver, all fail.
    fn set_resolver(&mut self, resolver: Box<dyn Resolver>);

    /// Uses this certificate for new incoming connections.
    fn set_tls(&mut self, tls: TlsConfigs);

    /// Closes all listeners. The system refuses new connections; accepted ones stay open.
    fn stop_listening(&mut self);

    /// Waits for an event, at most until `deadline`, and handles it.
    ///
    /// # Errors
    /// [`DriverError`] if the operating system fails to wait, or a thread has ended.
    fn turn(&mut self, deadline: Instant) -> Result<(), DriverError>;
}

impl<N: Node> Drive<N> for Driver<N> {
    fn node(&self) -> &N {
        self.node()
    }

    fn node_mut(&mut self) -> &mut N {
        self.node_mut()
    }

    fn now(&self) -> Instant {
        self.now()
    }

    fn traffic(&self) -> &Traffic {
        self.traffic()
    }

    fn tcp_accounts(&self, each: &mut dyn FnMut(ConnId, TcpAccount)) {
        self.tcp_accounts(each);
    }

    fn waker(&self) -> Waker {
        self.waker()
    }

    fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.set_resolver(resolver);
    }

    fn set_tls(&mut self, tls: TlsConfigs) {
        self.set_tls(tls);
    }

    fn stop_listening(&mut self) {
        self.stop_listening();
    }

    fn turn(&mut self, deadline: Instant) -> Result<(), DriverError> {
        self.turn(deadline)
    }
}
