//! Processes of this project on this machine: `flashflow`, or the running program with another command. The relays
//! take part in their measurement, unlike C tor.
//!
//! The program must have the options `--json` and `--tied`, and the command `relay` for an [`OwnRelay`].

mod error;
mod process;
mod relay;
mod reports;

pub use error::OwnError;
pub use process::OwnProcess;
pub use relay::{OwnRelay, OwnRelaySpec};
pub use reports::{CpuReading, RelayReports};
