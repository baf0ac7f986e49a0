//! A Tor relay: the shell around [`onion::router`].
//!
//! [`Relay::start`] reads or generates the long-term keys, listens, publishes a server descriptor to the
//! directory authorities, and follows the consensus. The engine runs on one thread, another talks to the
//! authorities, a third one serves the directory, and an exit resolves names on a fourth ([`dns`]).
//!
//! ```no_run
//! use relay::{Relay, RelayConfig};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = RelayConfig::read(Path::new("relay.toml"))?.check()?;
//! let (sender, events) = std::sync::mpsc::channel();
//! let relay = Relay::start(&settings, sender)?;
//! println!("{} listens on {}", relay.rsa(), relay.address());
//! for event in events {
//!     println!("{event}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It is also a directory cache: it serves the documents that [`dirmgr`] fetches and verifies to clients,
//! over BEGIN_DIR streams. A forged consensus could do limited harm: coordinators come from the
//! configuration only, and parameters are clamped to the ranges of the specifications.
//!
//! It must not depend on the crates `client`, `coordinator` or `lab`.

mod bandwidth;
pub mod config;
mod daemon;
pub mod descriptor;
mod directory;
pub mod dns;
mod document;
mod engine;
mod event;
pub mod extra_info;
pub mod family;
mod history;
pub mod keys;
mod metrics;
mod observations;
mod overload;
mod own_addresses;
mod parameters;
mod policy;
pub mod publish;
mod quota_log;
mod reload;
mod renewal;
mod rolling_window;
mod schedule;
mod self_test;
mod server;
mod state;

pub use config::{
    ConfigError, ExitSection, ExitSettings, FlashFlowConfig, RelayConfig, SchedulerName, Settings,
    coordinator_key,
};
pub use daemon::{Relay, RelayError};
pub use event::{Load, RelayEvent, Renewed, Unfinished};
pub use policy::target_params;
pub use reload::Reloaded;
pub use self_test::Reachability;
