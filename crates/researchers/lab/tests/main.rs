//! Tests of private networks, lying relays, and circuits and streams in virtual time and on real sockets.
//!
//! A single program, since linking takes long. `scripts/lanes` lists which file runs when.

mod common;
mod conformance;
mod consensus_median;
mod echo;
mod echoes;
mod forgers;
mod liar_relay;
mod liars;
mod network;
mod remains;
mod scenes;
mod wan;
