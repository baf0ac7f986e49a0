//! Private networks of C tor on the loopback interface.
//!
//! [`Network::start`] starts three authorities and any number of relays, with optional rate limits, in a new
//! folder. About ten seconds later there is a consensus, and then another one every ten seconds. The traffic
//! stays on loopback; the system's tor and its files are not touched.
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
//! An [`OwnRelay`] is a relay of this project in a separate process, in such a network or alone. [`RelayReports`]
//! collects the byte counts that a relay of either kind reports while it is measured.
//!
//! [`connections`] reads the kernel's counters of the sockets of any of these processes. A [`Witness`](witness::Witness)
//! uses them to count forwarded bytes, and [`processors`] measures CPU use.
//!
//! A [`Client`] is a C tor client of a network with [restricted paths](Pins), and [`download`] fetches content
//! of a [`ContentServer`] through it; a [`NameServer`] resolves names for exits.
//!
//! [`load`] generates load, [`attacks`] attacks relays on loopback, and [`liars`] are relays that cheat in their
//! measurement.
//!
//! [`wan`] emulates wide-area networks. A [`JoinedRelay`] is a C tor relay on another host than the rest of its
//! network.
//!
//! # Cleanup
//! No process, port or file of a network remains after the process that started it, however that ends:
//! - Dropping a [`Network`], also by a panic, ends its tor processes and removes its folder.
//! - A keeper process does the same when the owner ends otherwise (Ctrl-C, `kill -9`, abort), which closes the
//!   keeper's standard input.
//! - If the keeper is killed as well, each tor exits about 15 seconds after its owner
//!   (`__OwningControllerProcess`). Only the folder remains then.
//!
//! A [`TemporaryFolder`] has such a keeper, too.
//!
//! A network that is to outlive its process is started with [`NetworkSpec::detached`] and released by
//! [`Network::detach`]; [`status`] and [`down`] find it by its folder.

pub mod attacks;
mod background;
mod children;
mod client;
mod clock;
pub mod conformance;
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
pub mod load;
mod names;
mod network;
mod node;
mod own;
mod patched;
mod peer;
mod ports;
mod process;
pub mod processors;
mod progress;
mod spec;
mod state;
mod torrc;
pub mod wan;
mod web;
pub mod witness;

pub use background::Background;
pub use client::{Client, Pins};
pub use connections::{Connection, connections};
pub use error::LabError;
pub use folder::TemporaryFolder;
pub use joined::JoinedRelay;
pub use names::NameServer;
pub use network::Network;
pub use node::{Node, Role};
pub use own::{CpuReading, OwnError, OwnProcess, OwnRelay, OwnRelaySpec, RelayReports};
pub use patched::{patched_tor, patched_tor_at};
pub use process::{cpu_time, processes, resident_bytes, wake_ups};
pub use progress::Progress;
pub use spec::{MIN_LIMIT, MIN_VOTING_INTERVAL_S, NetworkSpec, RelaySpec};
pub use state::{Status, down, status};
pub use web::{
    Content, ContentServer, Download, connect_through, download, download_while, read_rest,
};
