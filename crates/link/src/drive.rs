use crate::driver::{Driver, DriverError, Remote, Resolver, Traffic};
use crate::sockopt::TcpAccount;
use crate::tls::TlsConfigs;
use onion::Instant;
use onion::node::{ConnId, Node};

/// What runs a node over real sockets: a [`Driver`], which serves them itself, or a
/// [`Crew`](crate::Crew), which has threads for that.
pub trait Drive<N> {
    /// The node.
    fn node(&self) -> &N;

    /// The node, for its commands. The next [`turn`](Self::turn) carries them out.
    fn node_mut(&mut self) -> &mut N;

    /// The time, as the node gets it.
    fn now(&self) -> Instant;

    /// What has gone through so far.
    fn traffic(&self) -> &Traffic;

    /// Asks the kernel about each connection that stands, which costs a system call for each. Those of
    /// which it does not tell are left out.
    fn tcp_accounts(&self, each: &mut dyn FnMut(ConnId, TcpAccount));

    /// A handle that other threads wake this one with.
    fn remote(&self) -> Remote;

    /// Lets the node's questions to the domain name system be answered. Without, they all fail.
    fn set_resolver(&mut self, resolver: Box<dyn Resolver>);

    /// Shows another certificate from now on, to connections that come in.
    fn set_tls(&mut self, tls: TlsConfigs);

    /// Closes all listeners: who connects from now on is refused by the system. Connections that have
    /// come in stay.
    fn stop_listening(&mut self);

    /// Waits for something to happen, at most until `deadline`, and handles it.
    ///
    /// # Errors
    /// Where the operating system fails to wait, or a thread has ended.
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

    fn remote(&self) -> Remote {
        self.remote()
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
