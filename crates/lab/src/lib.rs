//! Private networks of stock tor on the loopback interface.
//!
//! [`Network::start`] brings up three authorities and any number of relays, with rate limits of
//! choice, in a folder of their own. About ten seconds later there is a consensus, and another one
//! every ten seconds. The traffic stays on loopback; the system's tor and its files are not
//! touched.
//!
//! ```no_run
//! use lab::{Network, NetworkSpec, RelaySpec};
//! use onion::Rate;
//!
//! let slow = RelaySpec::new("slow").limited_to(Rate::from_mbit_per_s(10.0));
//! let spec = NetworkSpec::new(vec![slow, RelaySpec::new("fast")]);
//! let network = Network::start(&spec, &mut |step| eprintln!("{step}"))?;
//! println!("{} listens on {}", network.relays()[0].nickname(), network.relays()[0].or_addr());
//! network.stop()?;
//! # Ok::<(), lab::LabError>(())
//! ```
//!
//! An [`OwnRelay`] is a relay of our own in a process of its own, in such a network or alone; [`RelaySaid`] gathers
//! what a relay, stock or ours, says of itself while it is measured.
//!
//! What any of these processes sends and receives the kernel counts: [`connections`].
//!
//! A [`Client`] is a stock tor that uses a network, along [paths](Pins) of choice, and [`download`] gets
//! through it what a [`ContentServer`] has; a [`NameServer`] has names for exits.
//!
//! [`wan`] has networks of our own with real distances. A [`JoinedRelay`] is a stock relay of a network that is at another
//! host than the rest.
//!
//! # No remains
//! However the process ends that has started a network, no process, port or file of the network is
//! left:
//! - A [`Network`] that is dropped, also by a panic, ends its tors and removes its folder.
//! - A keeper process does the same when its owner vanishes (Ctrl-C, `kill -9`, abort): it notices
//!   that its standard input is closed.
//! - Should the keeper be killed as well, each tor still ends about a quarter of a minute after its
//!   owner (`__OwningControllerProcess`). The folder is then left.
//!
//! A [`TemporaryFolder`] has such a keeper, too.
//!
//! A network that shall live on is started with [`NetworkSpec::detached`] and let go by
//! [`Network::detach`]; [`status`] and [`down`] find it by its folder.

mod children;
mod client;
mod clock;
mod connections;
mod consensus;
pub mod control;
mod error;
mod folder;
mod joined;
mod keeper;
mod keys;
mod launch;
pub mod liars;
mod names;
mod network;
mod node;
mod own;
mod ports;
mod process;
mod progress;
mod spec;
mod state;
mod torrc;
pub mod wan;
mod web;

pub use client::{Client, Pins};
pub use connections::{Connection, connections};
pub use error::LabError;
pub use folder::TemporaryFolder;
pub use joined::JoinedRelay;
pub use names::NameServer;
pub use network::Network;
pub use node::{Node, Role};
pub use own::{CpuReading, OwnError, OwnProcess, OwnRelay, OwnRelaySpec, RelaySaid};
pub use process::{cpu_time, processes, resident_bytes};
pub use progress::Progress;
pub use spec::{LEAST_LIMIT, LEAST_VOTING_INTERVAL_S, NetworkSpec, RelaySpec};
pub use state::{Status, down, status};
pub use web::{
    Content, ContentServer, Download, connect_through, download, download_while, read_rest,
};
