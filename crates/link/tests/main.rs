//! The driver over loopback.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod common;
mod node_thread;
mod plain;
