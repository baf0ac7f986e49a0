//! Virtual time: the engine's nodes, joined by modelled connections.
//!
//! | module | what is in it |
//! |---|---|
//! | [`fixture`] | one router on bytes, and the peers of its connections, for tests and fuzzing |
//! | [`stage`] | one relay on cells, over any cell model, and everybody around it |
//! | [`linked`] | a client's Conflux set and its exit on cells, with a network that delivers cells of different legs in any order |
//! | [`star`] | circuits of hops with windows, cell by cell, without the engine |
//! | [`world`] | whole networks on cells: relays, clients, users; built for scale |
//! | [`wire`] | nodes that speak bytes, over connections with latency, rates, buffers, loss and TCP |
//!
//! Nothing here reads a clock or an ambient random generator: a run is repeated by its seed.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod fixture;
pub mod linked;
mod rto;
mod script;
mod split_mix;
pub mod stage;
pub mod star;
pub mod wire;
pub mod world;
