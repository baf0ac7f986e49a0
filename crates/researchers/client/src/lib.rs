//! A Tor client for research and private networks: path selection, and a SOCKS proxy on the circuits of
//! [`onion::client`].
//!
//! [`ClientProxy::start`] follows the consensus on one thread and serves programs on another. All
//! decisions are free of I/O: the [`NetDir`], [`path`] selection by a [`strategy`], [`guards`],
//! [`build_timeout`]s, the pool of circuits, and the node that attaches programs to streams.
//!
//! It must not be used for anonymity: it has not been audited, its traffic differs from that of other
//! clients, and strategies other than `weighted` reduce anonymity by design. Onion services are not
//! supported.
//!
//! ```no_run
//! use client::{ClientProxy, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let authorities = vec!["127.0.0.1:7001".parse()?];
//! let (sender, events) = std::sync::mpsc::channel();
//! let proxy = ClientProxy::start(Settings::new(authorities, "client-data".into()), sender)?;
//! println!("SOCKS at {}", proxy.socks());
//! for event in events {
//!     println!("{event}");
//! }
//! # Ok(())
//! # }
//! ```

pub mod anonymity;
pub mod begin_dir;
pub mod build_timeout;
mod choices;
mod client_proxy;
mod directory;
mod event;
pub mod guards;
pub mod model;
mod netdir;
pub mod path;
mod pool;
pub mod probe;
mod proxy;
mod sources;
mod state;
pub mod strategy;
mod tunnel;

pub use choices::Choices;
pub use client_proxy::{ClientError, ClientProxy, Settings};
pub use documents::countries;
pub use event::{Event, Hop, LegTraffic};
pub use netdir::{NetDir, RelayInfo};
pub use pool::Isolation;
pub use sources::{Directories, OnionDirectory};
