//! Building a circuit hop by hop as its origin (tor-spec §5.3).
//!
//! CREATE_FAST or CREATE2 to the first relay over its link, then EXTEND2 to the others. The caller uses the
//! finished circuit.

mod builder;
mod error;
mod next_hop;

pub use crate::cell_model::tor::Handshake;
pub use builder::{Builder, Built, Step, extend_body};
pub use error::CircuitError;
pub use next_hop::NextHop;
