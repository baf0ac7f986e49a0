//! Virtual time: the nodes of the engine, joined by connections that are models.
//!
//! | module | what is in it |
//! |---|---|
//! | [`fixture`] | one router on bytes, and the other ends of its connections, for tests and fuzzing |
//! | [`stage`] | one relay at the seam of cells, over any suite, and everybody around it |
//! | [`linked`] | a client's linked circuits and their exit at the seam of cells, and somebody between who lets cells arrive in any order |
//! | [`star`] | circuits of hops with windows, cell by cell, without the engine |
//! | [`world`] | whole networks at the seam of cells: relays, clients, users; made for scale |
//! | [`wire`] | nodes that speak bytes, over connections with latency, rates, buffers, loss and TCP |
//!
//! Nothing here reads a clock or draws ambient randomness: a run is repeated by its seed.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod fixture;
pub mod linked;
mod script;
mod split_mix;
pub mod stage;
pub mod star;
pub mod wire;
pub mod world;
