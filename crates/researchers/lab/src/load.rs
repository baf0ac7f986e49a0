//! Load generators of experiments: client traffic through a relay, idle circuits, and nodes of the engine on
//! threads of this process.

mod circuit_load;
mod client_load;
mod nodes;

pub use circuit_load::CircuitLoad;
pub use client_load::{ClientLoad, ClientTraffic};
pub use nodes::{NodeError, Nodes, listen, rng};
