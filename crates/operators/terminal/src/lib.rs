//! The common user interface of all commands.
//!
//! [`Output`] prints results and progress, [`Interrupt`] lets the user end a command, [`Hangup`] makes a daemon read
//! its configuration again, and [`Exit`] is the exit status. [`measuring`] measures a relay by the user's arguments and
//! shows the progress.

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
pub use output::{End, ErrorStream, Output, is_journal, note, tagged};
