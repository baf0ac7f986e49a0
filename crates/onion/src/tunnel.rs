//! The ends of circuits: legs and tunnels.
//!
//! A [`Leg`] is one circuit where it ends: how many cells may be sent on it, and the tags of those that were.
//! A [`Tunnel`] is what the streams of an end share, whichever circuit carries their cells. Today every tunnel
//! has one leg; with Conflux (proposal 329) it has several. Relays and clients have the same of both.

mod leg;
mod streams;

pub use leg::{Filling, Leg};
pub use streams::Tunnel;
