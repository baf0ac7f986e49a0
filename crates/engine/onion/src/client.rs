//! A client for tests, benchmarks and simulations: circuits through given relays, streams, and statistics about
//! both.
//!
//! [`Client`] behaves on the wire like C tor's clients: links without an identity, circuits of any length,
//! streams with authenticated SENDMEs. It does not choose relays and has no proxy: paths and streams are
//! commands. [`Server`] is a destination for its streams. Their bytes are a [`Pattern`], which both ends verify
//! without storing it.
//!
//! [`Core`] makes the decisions, over cells of any [`CellModel`](crate::cell_model::CellModel); an
//! [`Application`] produces and consumes the data of a stream.

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

/// Maximum number of queued events. If the shell does not poll, the oldest are lost.
const EVENTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
