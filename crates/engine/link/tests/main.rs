//! The driver over loopback.
//!
//! One program, since linking takes long. `scripts/lanes` lists the lane of each file.

mod common;
mod node_thread;
mod plain;
