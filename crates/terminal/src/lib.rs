//! What all commands have in common with the person or program before them.
//!
//! [`Output`] is where results and progress go, [`Interrupt`] how the user ends a command,
//! [`Hangup`] how he has it read its configuration again, [`Exit`] how a command
//! tells that it has ended. [`network`] brings up a private network and [`measuring`] measures a relay, both as
//! the user's arguments say and telling as they go.

mod arguments;
mod error;
mod exit;
mod hangup;
mod interrupt;
pub mod measuring;
pub mod network;
mod output;
pub mod times;

pub use arguments::{TeamArguments, socket_address};
pub use error::Error;
pub use exit::Exit;
pub use hangup::Hangup;
pub use interrupt::Interrupt;
pub use output::{Output, note};
