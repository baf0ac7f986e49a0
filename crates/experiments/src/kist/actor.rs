//! Nodes of a run: each on a thread of its own, in one of the experiment's networks.

use super::net::Network;
use super::trace::SharedTrace;
use crate::error::Error;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Namespace, NodeThread, Observer};
use onion::node::Node;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::net::TcpListener;

/// What all nodes of a run have in common.
pub(super) struct KistNetwork<'n> {
    pub(super) network: &'n Network,
    pub(super) clock: Clock,
    pub(super) tls: TlsConfigs,
    pub(super) trace: SharedTrace,
}

impl KistNetwork<'_> {
    /// Lets a node run; it ends with what is returned.
    pub(super) fn add<N: Node + Send + 'static>(
        &self,
        namespace: &Namespace,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        watch: impl Observer<N> + 'static,
    ) -> Result<NodeThread<N>, Error> {
        let driver = Driver::new(node, self.clock, self.tls.clone(), listeners, options)?;
        // A thread is in the network of the one that starts it.
        let thread = namespace.run(|| NodeThread::start("actor", Box::new(driver), watch));
        Ok(thread.map_err(broken)??)
    }
}

pub(super) fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}

pub(super) fn rng() -> Result<StdRng, Error> {
    StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))
}
