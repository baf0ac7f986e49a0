//! The shell around the engine: moves bytes between sockets and [`onion::node::Node`]s.
//!
//! - [`Driver`] runs one node on one thread: epoll, TLS, timers. It decides nothing. A [`Resolver`]
//!   answers the node's DNS queries.
//! - [`ThreadedDriver`] runs one node whose sockets are served by several threads.
//! - [`NodeThread`] runs either on a separate thread; a [`NodeHandle`] sends it tasks from others.
//! - [`tls`] wraps rustls so that whole records are encrypted and decrypted in reused buffers.
//! - [`IdentityIssuer`] makes the certificates of a relay, and throw-away identities;
//!   [`LongTermKeys`] outlive a process.
//! - [`Namespace`] is a network namespace for experiments, and [`Tun`] a network interface served
//!   by this process.
//! - [`tcp_bytes`] and [`tcp_account`] read the kernel's counters of a connection.
//! - [`Clock`] is the only place that reads a clock.
//! - [`pump`] is a baseline for benchmarks: TLS over loopback.
//!
//! This is the only crate with `unsafe` code. It must not know relays, clients or measurements,
//! only nodes.

mod clock;
mod descriptors;
mod drive;
mod driver;
mod identity_issuer;
mod issue_error;
mod long_term;
mod namespace;
mod node_thread;
pub mod pump;
mod sockopt;
mod threaded;
pub mod tls;
mod tun;
mod workers;
mod x509;

pub use clock::{
    CLOCK_TOLERANCE, Clock, ClockJump, ClockWatch, thread_cpu_time, thread_wait_time, unix_time_s,
};
pub use descriptors::{Exhaustion, raise_descriptor_limit};
pub use drive::Drive;
pub use driver::{Driver, DriverError, DriverOptions, Reply, Resolver, Traffic, Waker};
pub use identity_issuer::{Certified, IdentityIssuer};
pub use issue_error::IssueError;
pub use long_term::LongTermKeys;
pub use namespace::Namespace;
pub use node_thread::{NodeHandle, NodeThread, Observer, ThreadError};
pub use sockopt::{TcpAccount, TcpBytes, tcp_account, tcp_bytes};
pub use threaded::ThreadedDriver;
pub use tun::Tun;
