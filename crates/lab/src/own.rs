//! Processes of this project on this machine: the running program with another command. Its relays take part in
//! their measurement, unlike C tor.
//!
//! A caller is a program that has the command it starts (`relay` for an [`OwnRelay`]) and the options `--json`
//! and `--tied`.

mod error;
mod process;
mod relay;
mod said;

pub use error::OwnError;
pub use process::OwnProcess;
pub use relay::{OwnRelay, OwnRelaySpec};
pub use said::{CpuReading, RelaySaid};
