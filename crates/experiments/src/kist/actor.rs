//! Nodes of a run: each on a thread of its own, in one of the experiment's networks.

use super::net::Network;
use super::trace::Shared;
use crate::error::Error;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Namespace, Remote};
use onion::node::Node;
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// How often a node is told what to do, at least.
const GRAIN: Duration = Duration::from_millis(10);

/// What all nodes of a run have in common.
pub(super) struct Scene<'n> {
    pub(super) network: &'n Network,
    pub(super) clock: Clock,
    pub(super) tls: TlsConfigs,
    pub(super) shared: Shared,
}

/// A node that runs; it ends with this.
pub(super) struct Actor {
    must_stop: Arc<AtomicBool>,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

impl Scene<'_> {
    /// Lets a node run. `between` its turns it is told what to do, and asked what it has seen.
    pub(super) fn add<N: Node + Send + 'static>(
        &self,
        namespace: &Namespace,
        node: N,
        listeners: Vec<TcpListener>,
        options: DriverOptions,
        mut between: impl FnMut(&mut N, Instant) + Send + 'static,
    ) -> Result<Actor, Error> {
        let mut driver = Driver::new(node, self.clock, self.tls.clone(), listeners, options)?;
        let namespace = namespace.try_clone().map_err(broken)?;
        let (remote, must_stop) = (driver.remote(), Arc::new(AtomicBool::new(false)));
        let (theirs, shared) = (Arc::clone(&must_stop), self.shared.clone());
        let thread = thread::spawn(move || {
            if let Err(error) = namespace.enter() {
                shared.fail(error);
            }
            while !theirs.load(Ordering::Acquire) {
                let soon = driver.now() + GRAIN;
                if let Err(error) = driver.turn(soon) {
                    shared.fail(error);
                    return;
                }
                let now = driver.now();
                between(driver.node_mut(), now);
            }
        });
        Ok(Actor { must_stop, remote, thread: Some(thread) })
    }
}

impl Actor {
    /// Lets it look at once what it is told to do.
    pub(super) fn wake(&self) {
        self.remote.wake();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Release);
        self.remote.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

pub(super) fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}

pub(super) fn rng() -> Result<StdRng, Error> {
    StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))
}
