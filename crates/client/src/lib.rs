//! A Tor client for research and private networks: how it chooses paths, and a SOCKS proxy on the circuits of
//! [`onion::client`].
//!
//! [`ClientProxy::start`] follows the consensus from the authorities (on one thread) and serves programs (on another). What is
//! decided is decided without I/O: the [`View`] of the network, [`path`]s by a [`strategy`], [`guards`], [`timeouts`], the pool of
//! circuits, and the node that joins programs' connections to streams.
//!
//! It is not for people who need anonymity: nobody has audited it, its traffic tells it from stock clients, and strategies other than `weighted` give anonymity away by purpose.
//! Onion services are no part of it.
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
pub mod countries;
mod directory;
mod event;
pub mod guards;
pub mod model;
pub mod path;
mod pool;
pub mod probe;
mod proxy;
mod running;
mod sources;
mod state;
pub mod strategy;
pub mod timeouts;
mod tunnel;
mod view;

pub use event::{Event, Hop, LegTraffic};
pub use pool::Isolation;
pub use running::{ClientError, ClientProxy, Settings};
pub use sources::{Directories, OnionDirectory};
pub use view::{RelayInfo, View};
