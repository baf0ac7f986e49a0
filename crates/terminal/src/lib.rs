//! What all commands have in common with their user.
//!
//! [`Output`] is where results and progress go, [`Interrupt`] how the user ends a command, [`Hangup`] how the operator has a
//! daemon read its configuration again, and [`Exit`] the exit status. [`measuring`] measures a relay as the user's arguments say
//! and shows the progress.

mod arguments;
mod error;
mod exit;
mod hangup;
mod interrupt;
pub mod measuring;
mod output;
pub mod times;

pub use arguments::{TeamArguments, socket_address};
pub use error::Error;
pub use exit::Exit;
pub use hangup::Hangup;
pub use interrupt::Interrupt;
pub use output::{Output, note};
