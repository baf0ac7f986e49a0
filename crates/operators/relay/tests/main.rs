//! Tests of the relay in networks of C tor.
//!
//! They are one program, because linking is slow. `scripts/lanes` lists when each file runs.

mod bandwidth_files;
mod c_tor;
mod cgo;
mod common;
mod directory;
mod downloads;
mod family;
mod linked_circuits;
mod links;
mod padded_client;
mod recorded_votes;
mod self_test;
