//! The engine on bytes and on cells, from outside.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod golden;
mod linked;
mod order;
mod padding;
mod protocol_vectors;
mod streams;
