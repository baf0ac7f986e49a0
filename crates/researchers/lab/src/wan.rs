//! Emulated wide-area networks: latency, loss and bottlenecks between hosts on one machine.
//!
//! A [`Wan`] is a star. Each host is a network namespace (without a name) with one interface, whose other end
//! is read by a thread of this process. Each ordered pair of hosts has a [`WanPath`] with latency, jitter, loss,
//! a bottleneck with its queue, reordering and duplicates, which can be changed at run time. All paths of a host
//! share its [`Access`] link. TCP, sockets and processes are the kernel's, so programs cannot distinguish the
//! emulated network from a real one.
//!
//! ```no_run
//! use lab::wan::{Congestion, Queue, Wan, WanSpec, WanPath};
//! use onion::{Duration, Rate};
//! use std::net::{TcpListener, TcpStream};
//! use std::process::Command;
//!
//! let path = WanPath::with_latency(Duration::from_millis(50))
//!     .with_loss(0.001)
//!     .with_bottleneck(Rate::from_mbit_per_s(100.0), Queue::Time(Duration::from_millis(100)));
//! let mut spec = WanSpec::pair(path).with_seed(7);
//! spec.hosts[0].congestion = Some(Congestion::Bbr);
//! let wan = Wan::start(&spec)?;
//! let (near, far) = (wan.host("near")?, wan.host("far")?);
//!
//! let listener = far.run(|| TcpListener::bind((far.address(), 80)))?;
//! let stream = near.run(|| TcpStream::connect((far.address(), 80)))?; // 100 ms
//! let child = near.start(Command::new("ping").arg(far.address().to_string()))?;
//!
//! wan.set_path("far", "near", wan.path("far", "near")?.blackholed())?; // a blackhole towards `near`
//! println!("{:?} {:?}", wan.counts("near", "far")?, wan.unintended_losses()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Random decisions are seeded: the *n*-th packet of a path is lost, delayed or duplicated in all runs with
//! the same seed, or in none. Decisions that depend on time (queues and correlated jitter) are repeatable only
//! if the timing of the traffic is.
//!
//! # Limits
//! One thread carries everything; [`Wan::unintended_losses`] reports what it could not carry. Deliveries are never
//! early, and a fraction of a millisecond late. Rates count IP packets with their headers. Only IPv4.
//!
//! # Cleanup
//! Namespaces and interfaces have no names and end with the process, however it ends; a keeper kills the
//! processes that still run in a host, as does dropping a [`Wan`].

mod bottleneck;
mod counts;
mod error;
mod fabric;
mod fate;
mod forwarder;
mod host;
mod path;
mod pool;
mod spec;

pub use counts::{Counts, UnintendedLosses};
pub use error::WanError;
pub use host::Host;
pub use path::{Bottleneck, Jitter, Loss, Queue, Reordering, WanPath};
pub use spec::{Access, Congestion, HostSpec, SocketBuffer, WanSpec};

use fabric::{Fabric, HostNumber};
use forwarder::{Forwarder, Shared};
use link::Clock;
use onion::Duration;
use pool::Pool;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A running network. It ends with this value.
///
/// It can be shared between threads: changes affect packets that are sent later.
pub struct Wan {
    hosts: Vec<Host>,
    shared: Arc<Shared>,
    /// Dropping it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Wan {
    /// Creates it.
    ///
    /// # Errors
    /// [`WanError::Spec`] if the specification is invalid; otherwise the machine's error. It needs root,
    /// `/dev/net/tun`, and the programs `ip` and `tc`.
    pub fn start(spec: &WanSpec) -> Result<Self, WanError> {
        if let Some(problem) = spec.problem() {
            return Err(WanError::Spec(problem));
        }
        let made = spec.hosts.iter().map(|host| Host::new(host, spec.mtu));
        let (hosts, tuns): (Vec<_>, Vec<_>) =
            made.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let accesses: Vec<_> = spec.hosts.iter().map(|host| host.access).collect();
        let fabric = Fabric::new(spec.seed, &accesses, |from, to| spec.path(from, to));
        let shared = Arc::new(Shared::new(fabric));
        let (stop, stopped) = UnixStream::pair().map_err(WanError::Thread)?;
        let addresses = spec.hosts.iter().zip(0..).flat_map(|(host, number)| {
            host.addresses().map(move |address| (address.octets(), number))
        });
        let forwarder = Forwarder {
            tuns,
            hosts: addresses.collect(),
            pool: Pool::new(spec.packets_max, usize::from(spec.mtu)),
            shared: Arc::clone(&shared),
            stop: stopped,
            clock: Clock::start(),
        };
        let thread = thread::Builder::new()
            .name("wan".to_owned())
            .spawn(|| forwarder.run())
            .map_err(WanError::Thread)?;
        Ok(Self { hosts, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// The hosts, in the order of the specification.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host by its name.
    ///
    /// # Errors
    /// [`WanError::UnknownHost`] if there is none.
    pub fn host(&self, name: &str) -> Result<&Host, WanError> {
        Ok(&self.hosts[self.number(name)?])
    }

    /// The current path from one host to another.
    ///
    /// # Errors
    /// [`WanError::UnknownHost`].
    pub fn path(&self, from: &str, to: &str) -> Result<WanPath, WanError> {
        let (from, to) = (self.number(from)?, self.number(to)?);
        Ok(*self.shared.fabric().path_mut(from, to))
    }

    /// Changes the path from one host to another. Packets in flight are not affected.
    ///
    /// # Errors
    /// [`WanError::UnknownHost`], and [`WanError::Spec`] for an invalid path.
    pub fn set_path(&self, from: &str, to: &str, path: WanPath) -> Result<(), WanError> {
        let (from, to) = (self.number(from)?, self.number(to)?);
        if let Some(problem) = path.problem() {
            return Err(WanError::Spec(problem));
        }
        *self.shared.fabric().path_mut(from, to) = path;
        Ok(())
    }

    /// Changes the access link of a host.
    ///
    /// # Errors
    /// [`WanError::UnknownHost`], and [`WanError::Spec`] for an invalid link.
    pub fn set_access(&self, host: &str, access: Access) -> Result<(), WanError> {
        let host = self.number(host)?;
        if let Some(problem) = access.problem() {
            return Err(WanError::Spec(problem));
        }
        *self.shared.fabric().access_mut(host) = access;
        Ok(())
    }

    /// The counters of the packets from one host to another.
    ///
    /// # Errors
    /// [`WanError::UnknownHost`].
    pub fn counts(&self, from: &str, to: &str) -> Result<Counts, WanError> {
        let (from, to) = (self.number(from)?, self.number(to)?);
        Ok(self.shared.fabric().counts(from, to))
    }

    /// Unintended losses.
    ///
    /// # Errors
    /// [`WanError::Host`] if the kernel does not report the drops of a host's interface.
    pub fn unintended_losses(&self) -> Result<UnintendedLosses, WanError> {
        let mut losses = self.shared.unintended_losses();
        for host in &self.hosts {
            losses.device += host.device_drops()?;
        }
        Ok(losses)
    }

    /// Processor time spent on carrying packets, including the receiving kernels' work; `None` if the kernel
    /// does not report it.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.shared.cpu_time()
    }

    fn number(&self, name: &str) -> Result<HostNumber, WanError> {
        let found = self.hosts.iter().position(|host| host.name() == name);
        found.ok_or_else(|| WanError::UnknownHost(name.to_owned()))
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // First the processes on the hosts, then the thread that carries their packets.
        self.hosts.clear();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The message of a panic has been printed.
            let _ended = thread.join();
        }
    }
}
