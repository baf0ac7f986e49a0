//! The coordinator's side: remote measurers, as members of its team.

mod capacity;
pub(crate) mod connect;
mod member;
mod session_task;

use crate::keys::{PublicKey, SecretKey};
use crate::messages::Hello;
use crate::opt_in;
use crate::tls;
use connect::Route;
use measurer::Consent;
use onion::Rate;
use session_task::{Command, SessionTask};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, oneshot, watch};

pub use capacity::{CapacityPlan, CapacityResult, CapacityTestError};
pub use connect::ConnectError;
pub use member::RemoteMember;

/// The reason why no remote measurer can be used: this machine is to blame.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A thread or event queue cannot be created.
    #[error("cannot start a thread for the sessions with measurers: {0}")]
    Thread(io::Error),
    /// The TLS library rejects the key.
    #[error("cannot use the key for TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A coordinator's sessions with its measurers, on one thread. Dropping it ends them all; outstanding requests are then
/// reported as failed.
pub struct Remotes {
    key: SecretKey,
    handle: tokio::runtime::Handle,
    /// The lines of the opt-in list for measurers that take it.
    list: watch::Sender<Arc<[String]>>,
    /// Dropping the sender is the command to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Remotes {
    /// Starts the thread; no measurer is contacted yet.
    ///
    /// # Errors
    /// [`RemoteError::Thread`].
    pub fn start(key: SecretKey) -> Result<Self, RemoteError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(RemoteError::Thread)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("remotes".to_owned()).spawn(move || {
            // It ends with an error: nothing is ever sent.
            let _ = runtime.block_on(stopped);
        });
        let thread = Some(thread.map_err(RemoteError::Thread)?);
        let (list, _) = watch::channel(Arc::from([]));
        Ok(Self { key, handle, list, stop: Some(stop), thread })
    }

    /// Hands this opt-in list to all measurers that take it, now or when their sessions begin.
    pub fn hand_out(&self, consent: &Consent) {
        let signature = consent.signature().map(|line| format!("# {line}"));
        self.list.send_replace(opt_in::lines(consent).chain(signature).collect());
    }

    /// A measurer of the team. It is contacted on demand, and again after its session was lost.
    ///
    /// # Errors
    /// The TLS library rejects our key.
    pub fn measurer(&self, at: SocketAddr, key: PublicKey) -> Result<RemoteMeasurer, RemoteError> {
        let tls = Arc::new(tls::client_config(&self.key, key)?);
        let (commands, receiver) = mpsc::unbounded_channel();
        let route = Route { at, pinned: key, own: self.key.public(), tls };
        let task = SessionTask::new(route, self.list.subscribe());
        self.handle.spawn(task.run(receiver));
        Ok(RemoteMeasurer { at, key, commands })
    }
}

impl Drop for Remotes {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

/// A remote measurer: one session, over which it takes part in several measurements at once.
#[derive(Clone, Debug)]
pub struct RemoteMeasurer {
    at: SocketAddr,
    key: PublicKey,
    commands: mpsc::UnboundedSender<Command>,
}

/// A measurer's reported abilities, over the rounds of all coordinators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Its send and receive rate.
    pub capacity: Rate,
    /// Maximum number of simultaneous rounds.
    pub rounds_max: u32,
    /// Maximum number of sockets to relays.
    pub sockets_max: u32,
}

impl Abilities {
    /// The number of relays that it can help to measure at once, with at most this number of sockets to each, without
    /// regard to its rate. At least one.
    #[must_use]
    pub fn at_once_max(&self, sockets_each: u32) -> u32 {
        self.rounds_max.min(self.sockets_max / sockets_each.max(1)).max(1)
    }
}

impl RemoteMeasurer {
    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// Its public key.
    #[must_use]
    pub const fn key(&self) -> PublicKey {
        self.key
    }

    /// Creates a session if there is none, and returns the measurer's abilities. Blocks for some seconds at most.
    ///
    /// # Errors
    /// [`ConnectError`]: the component to blame, and the remedy.
    pub fn abilities(&self) -> Result<Abilities, ConnectError> {
        let (answer, answered) = sync_channel(1);
        // If the command is not received, the answer channel is closed.
        let _ = self.commands.send(Command::Greet { answer });
        let hello: Hello = answered.recv().map_err(|_| ConnectError::Ended)??;
        Ok(Abilities {
            capacity: hello.capacity,
            rounds_max: hello.rounds_max,
            sockets_max: hello.sockets_max,
        })
    }

    /// A member for one measurement.
    #[must_use]
    pub fn member(&self) -> RemoteMember {
        RemoteMember::new(self.commands.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_concurrent_relays_is_limited_by_rounds_and_sockets_and_at_least_one() {
        let most = |rounds_max, sockets_max, sockets_each| {
            let capacity = Rate::from_mbit_per_s(1.0);
            Abilities { capacity, rounds_max, sockets_max }.at_once_max(sockets_each)
        };
        assert_eq!(most(64, 13_000, 160), 64);
        assert_eq!(most(64, 799, 160), 4);
        assert_eq!(most(3, 799, 160), 3);
        assert_eq!((most(0, 320, 160), most(64, 12, 160)), (1, 1));
        assert_eq!(most(64, 7, 0), 7);
    }
}
