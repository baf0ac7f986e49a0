//! The client with networks of C tor and of our relays.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod begindir;
mod common;
mod conflux;
mod downloads;
mod failures;
mod own_relays;
mod probing;
mod socks;
