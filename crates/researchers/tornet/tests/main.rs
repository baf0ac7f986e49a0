//! Whole networks in virtual time: samples, scenarios and exports.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod balancers;
mod exports;
mod maps;
mod networks;
mod samples;
