//! Load generators of experiments: client traffic through a relay, idle circuits, and nodes of the engine on threads of this process.

mod client_load;
mod crowd;
mod nodes;

pub use client_load::ClientLoad;
pub use crowd::Crowd;
pub use nodes::{NodeError, Nodes, listen, rng};
