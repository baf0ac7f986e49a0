//! The common frame of the programs `flashflow` and `flashflow-lab`: command line, version, help, manual pages, completions and exit
//! status. It is independent of particular commands.

mod completions;
mod error;
mod help;
mod manual;
mod program;
mod schema;

pub use completions::CompletionsOptions;
pub use error::Error;
pub use manual::{ManualLine, ManualOptions};
pub use program::{COMMIT, Commands, TARGET, command, main};
pub use schema::{Either, SchemaOptions, Schemas, schema_of};
