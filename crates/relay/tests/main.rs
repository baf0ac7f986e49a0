//! Our relay in networks of C tor.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod authorities_said;
mod bandwidth_files;
mod cgo;
mod common;
mod directory;
mod downloads;
mod family;
mod linked_circuits;
mod links;
mod padded_client;
mod said;
mod self_test;
mod stock_tor;
