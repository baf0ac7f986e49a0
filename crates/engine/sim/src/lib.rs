//! Virtual time: the engine's nodes, joined by modelled connections.
//!
//! | module | what is in it |
//! |---|---|
//! | [`star`] | circuits of hops with windows, cell by cell, without the engine |
//! | [`world`] | whole networks on cells: relays, clients, users; built for scale |
//! | [`wire`] | nodes that speak bytes, over connections with latency, rates, buffers, loss and TCP |
//!
//! Nothing here reads a clock or an ambient random generator: a run is repeated by its seed.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod rto;
mod split_mix;
pub mod star;
pub mod wire;
pub mod world;
