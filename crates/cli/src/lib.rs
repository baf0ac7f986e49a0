//! The frame of the two programs, `flashflow` and `flashflow-lab`: command line, version, help, manual pages, completions and
//! exit status. It knows no command.

mod completions;
mod error;
mod help;
mod manual;
mod program;

pub use completions::CompletionsOptions;
pub use error::Error;
pub use manual::ManualOptions;
pub use program::{COMMIT, Commands, TARGET, command, main};
