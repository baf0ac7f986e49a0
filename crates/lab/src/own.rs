//! Processes of our own on this machine: the very program that runs, with another command. Its relays take
//! part in their measurement, as stock tor does not.
//!
//! Whoever uses this is a program that knows the command it starts (for an [`OwnRelay`], `relay`) and the options
//! `--json` and `--tied`.

mod error;
mod process;
mod relay;
mod said;

pub use error::OwnError;
pub use process::OwnProcess;
pub use relay::{OwnRelay, OwnRelaySpec};
pub use said::{CpuReading, RelaySaid};
