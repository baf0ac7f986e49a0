//! What measurements found, for people: an HTML page with plots that works without a network, and
//! a table for the terminal. The data serialise, for programs.
//!
//! Nicknames, errors and notes come from relays and other strangers: the page escapes them, the
//! table strips what a terminal would obey.

pub mod experiment;
mod figure;
mod html;
mod model;
mod plots;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod write;

pub use model::{Mode, RelayReport, Report, SecondPoint, Spread, Verdict};
pub use table::table;
pub use write::ReportError;
