//! Presents results of measurements: as a self-contained HTML page with figures, as a table for the terminal, and as JSON.
//!
//! A [`RelayReport`] is made from a [`coordinator::Record`]. The weights that authorities voted for since are added.
//!
//! Nicknames, errors and notes are untrusted: the page escapes them, and the table removes control characters.
//!
//! [`rows`] writes tables for other programs.

mod account;
pub mod experiment;
mod figure;
mod html;
mod line;
mod machine;
mod model;
mod plots;
mod record;
pub mod rows;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod write;

pub use account::RoundAccount;
pub use line::line;
pub use machine::machine;
pub use model::{Mode, RelayReport, Report, SecondPoint, Spread, Verdict};
pub use table::{sockets, table};
pub use text::plural;
pub use write::ReportError;
