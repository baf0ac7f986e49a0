//! The program as operators run it.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod agreement;
mod bwfile;
mod cli;
mod drain;
mod keeping;
mod machine;
mod manual;
mod operators;
mod packages;
mod relay;
mod schedule;
mod team;
