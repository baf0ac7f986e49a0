//! A Tor relay of FlashFlow's own: all that surrounds [`onion::router`].
//!
//! [`Relay::start`] reads or makes the long-term keys, listens, publishes a server descriptor to the
//! directory authorities, and follows the consensus: who may measure the relay, and whether it is
//! listed. The engine runs on one thread, the authorities are dealt with on another, a third one serves
//! the directory, and an exit looks names up on a fourth ([`dns`]).
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
//! It is a directory cache, too: what it fetches it serves to clients, over the streams that they begin
//! with BEGIN_DIR. What of a consensus is verified is said in the module that fetches it: signatures of
//! more than half of the configured authorities. What a false one could do is bounded: coordinators
//! come from the configuration only, and numbers are brought into the specifications' ranges.

mod accepted;
mod bandwidth;
pub mod config;
pub mod descriptor;
mod directory;
pub mod dns;
mod document;
mod driving;
mod event;
pub mod extra_info;
pub mod family;
mod history;
pub mod keys;
mod metrics;
mod observations;
mod observed;
mod overload;
mod own_addresses;
mod parameters;
mod policy;
pub mod publish;
mod reload;
mod renewal;
mod running;
mod schedule;
mod self_test;
mod server;
mod state;

pub use config::{
    ConfigError, ExitSection, ExitSettings, FlashFlowConfig, RelayConfig, SchedulerName, Settings,
    coordinator_key,
};
pub use event::{Load, RelayEvent, Renewed, Unfinished};
pub use policy::target_params;
pub use reload::Reloaded;
pub use running::{Relay, RelayError};
pub use self_test::Reachability;
