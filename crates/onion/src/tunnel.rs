//! The ends of circuits: legs and tunnels.
//!
//! A [`Leg`] is one circuit where it ends: how many cells may be sent on it, and the tags of those that were.
//! A [`Tunnel`] is what the streams of an end share, whichever circuit carries their cells. A tunnel has one leg, or with
//! [`conflux`] (proposal 329) several. Relays and clients have the same of both.

pub mod conflux;
mod leg;
mod streams;

pub use leg::{Filling, Leg};
pub use streams::Tunnel;
