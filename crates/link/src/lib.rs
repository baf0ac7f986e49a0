//! The shell around the engine: it moves bytes between sockets and [`onion::node::Node`]s.
//!
//! - [`Driver`] runs one node on one thread: epoll, TLS, timers. It decides nothing. Names it has
//!   looked up by a [`Resolver`].
//! - [`Crew`] runs one node whose sockets several threads serve.
//! - [`NodeThread`] lets either turn on a thread of its own, and is told from others what to do.
//! - [`tls`] wraps rustls so that whole records are encrypted from, and decrypted into, buffers that
//!   are used over and over.
//! - [`Forge`] makes the certificates that Tor expects of a relay, and throw-away identities;
//!   [`LongTermKeys`] are those that outlive a process.
//! - [`Namespace`] is a network of its own, for experiments, and [`Tun`] an interface whose other end is
//!   ours.
//! - [`tcp_bytes`] and [`tcp_account`] are what the kernel counts of a connection, whoever has it.
//! - [`Clock`] is the one place where a clock is read.
//! - [`pump`] is the yardstick: TLS over loopback with nothing in it.

mod clock;
mod crew;
mod descriptors;
mod drive;
mod driver;
mod forge;
mod forge_error;
mod long_term;
mod namespace;
mod node_thread;
pub mod pump;
mod sockopt;
pub mod tls;
mod tun;
mod workers;

pub use clock::{Clock, thread_cpu_time, thread_wait_time, unix_time_s};
pub use crew::Crew;
pub use descriptors::{Exhaustion, raise_descriptor_limit};
pub use drive::Drive;
pub use driver::{Driver, DriverError, DriverOptions, Remote, Reply, Resolver, Traffic};
pub use forge::{Certified, Forge};
pub use forge_error::ForgeError;
pub use long_term::LongTermKeys;
pub use namespace::Namespace;
pub use node_thread::{NodeThread, Teller, ThreadError, Watch};
pub use sockopt::{TcpAccount, TcpBytes, tcp_account, tcp_bytes};
pub use tun::Tun;
