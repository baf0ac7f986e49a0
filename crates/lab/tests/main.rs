//! Private networks, liars, and scenes of circuits and streams in virtual time and on real sockets.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod common;
mod echo;
mod echoes;
mod forgers;
mod liar_relay;
mod liars;
mod network;
mod remains;
mod scenes;
mod wan;
