//! The far end of circuits: our exit, and the server of their streams.

use super::net::SERVERS;
use super::trace::SharedTrace;
use crate::error::Result;
use lab::load::{Nodes, listen, rng};
use link::{Drive, DriverOptions, Namespace, NodeThread, Observer, ThreadError, unix_time_s};
use onion::Instant;
use onion::circuit::NextHop;
use onion::client::Server;
use onion::router::schedule::SchedulerConfig;
use onion::router::{ExitConfig, ExitPolicy, Router, RouterConfig};
use rand::rngs::StdRng;
use std::net::SocketAddr;

// The namespace has no other listeners.
const EXIT_PORT: u16 = 5000;
const SERVER_PORT: u16 = 5001;

/// The exit and the server, which run until this is dropped.
pub(super) struct Servers {
    /// The last hop of clients' circuits.
    pub(super) exit: NextHop,
    /// The address of the server.
    pub(super) at: SocketAddr,
    _exit: NodeThread<Router<StdRng>>,
    _server: NodeThread<Server>,
}

impl Servers {
    pub(super) fn start(
        namespace: &Namespace,
        nodes: &mut Nodes,
        trace: &SharedTrace,
    ) -> Result<Self> {
        let namespace = Some(namespace);
        let (exit_at, listener) = listen(namespace, SERVERS, EXIT_PORT)?;
        let identity = nodes.identity()?;
        let exit = NextHop::to_own(&identity, exit_at);
        let config = RouterConfig {
            // Adds no delay of its own.
            scheduler: SchedulerConfig::vanilla(),
            exit: Some(ExitConfig { policy: ExitPolicy::accept_all(), ..ExitConfig::default() }),
            ..RouterConfig::new(identity, unix_time_s())
        };
        let router = Router::new(config, rng()?, nodes.clock.now());
        let options = DriverOptions::default();
        let router = nodes.start(namespace, router, vec![listener], options, trace.clone())?;
        let (at, listener) = listen(namespace, SERVERS, SERVER_PORT)?;
        let options = DriverOptions { accepts_plain: true, ..options };
        let server =
            nodes.start(namespace, Server::new(), vec![listener], options, trace.clone())?;
        Ok(Self { exit, at, _exit: router, _server: server })
    }
}

impl Observer<Router<StdRng>> for SharedTrace {
    fn before_turn(&mut self, _: &mut dyn Drive<Router<StdRng>>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.fail(failure);
    }
}

impl Observer<Server> for SharedTrace {
    fn before_turn(&mut self, drive: &mut dyn Drive<Server>) -> Option<Instant> {
        while let Some(answer) = drive.node_mut().poll_answer() {
            self.lock().sent.insert(answer.transfer.seed, answer.began_at);
        }
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.fail(failure);
    }
}
