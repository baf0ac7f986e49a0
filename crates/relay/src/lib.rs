//! A Tor relay of FlashFlow's own: all that surrounds the engine that relays.

pub mod config;
pub mod descriptor;
pub mod keys;
mod observed;
mod policy;
pub mod publish;
mod schedule;

pub use config::{ConfigError, FlashFlowConfig, Limit, PublicKey, RelayConfig, Settings};
pub use policy::Policy;
