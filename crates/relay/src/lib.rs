//! A Tor relay of FlashFlow's own: all that surrounds [`onion::router`].
//!
//! [`Relay::start`] reads or makes the long-term keys, listens, publishes a server descriptor to the
//! directory authorities, and follows the consensus: who may measure the relay, and whether it is
//! listed. The engine runs on one thread, the authorities are dealt with on another.
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
//! Consensuses are believed without a look at their signatures, as in the whole project. What a false
//! one could do is bounded: coordinators come from the configuration only, and numbers are brought
//! into proposal 316's ranges.

pub mod config;
pub mod descriptor;
mod directory;
mod event;
pub mod keys;
mod observed;
mod policy;
pub mod publish;
mod running;
mod schedule;

pub use config::{
    ConfigError, FlashFlowConfig, RelayConfig, SchedulerName, Settings, coordinator_key,
};
pub use event::{Load, RelayEvent};
pub use policy::target_params;
pub use running::{Relay, RelayError};
