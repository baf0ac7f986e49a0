//! What measurements found, for people: an HTML page with plots that works without a network, and
//! a table for the terminal. The data serialise, for programs.
//!
//! A [`RelayReport`] is made from a [`coordinator::Record`], the one account of a measurement; only the
//! weights that authorities gave it since are added.
//!
//! Nicknames, errors and notes come from relays and other strangers: the page escapes them, the
//! table strips what a terminal would obey.
//!
//! [`rows`] writes tables for other programs.

mod account;
pub mod experiment;
mod figure;
mod html;
mod line;
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
pub use model::{Mode, RelayReport, Report, SecondPoint, Spread, Verdict};
pub use table::table;
pub use text::plural;
pub use write::ReportError;
