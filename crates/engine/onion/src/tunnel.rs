//! The ends of circuits: legs and tunnels.
//!
//! A [`Leg`] is the end of one circuit: the number of cells that may be sent on it, and the tags of cells in
//! flight. A [`Tunnel`] is the state that the streams of an end share, whichever circuit carries their cells. A
//! tunnel has one leg, or several with [`conflux`] (proposal 329). Relays and clients use the same types.

pub mod conflux;
mod leg;
mod streams;

pub use leg::{Filling, Leg};
pub use streams::Tunnel;
