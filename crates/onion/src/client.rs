//! A client of the network, for tests, benchmarks and simulations: circuits through relays that are
//! given, streams, and figures about both.
//!
//! [`Client`] does on the wire what stock clients do: links without an identity of its own, circuits
//! of any length, streams with SENDMEs that prove what has come. It chooses no relays and has no
//! proxy: the paths and what flows over them are commands. [`Server`] is a destination for its
//! streams. Bytes are [`Pattern`]s, so that both ends check each of them and store none.
//!
//! What it decides is in [`Core`], over cells of any [`CellModel`](crate::cell_model::CellModel); what flows over a
//! stream is up to its [`Application`].

mod application;
mod circuit;
mod core;
mod event;
mod face;
mod feedback;
mod link;
mod linking;
mod opening;
mod pattern;
mod plan;
mod receiving;
mod sending;
mod server;
mod set;
mod streams;

pub use self::core::Core;
pub use application::{Application, Progress};
pub use event::{CircuitNumber, ClientEvent, Figures, Loss, Outcome, StreamNumber};
pub use face::Client;
pub use pattern::{Pattern, Transfer};
pub use plan::{CircuitPlan, Destination, SetPlan};
pub use server::{Answer, Server};
pub use set::LegFigures;

/// Events that wait to be asked for, at most; a shell that does not ask misses the oldest.
const EVENTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
