//! Tests of the operators' program.
//!
//! They are one program, because linking is slow. `scripts/lanes` lists when each file runs.

mod agreement;
mod bwfile;
mod cli;
mod clocks;
mod drain;
mod gate;
mod keeping;
mod machine;
mod manual;
mod operators;
mod pace;
mod packages;
mod policy;
mod relay;
mod schedule;
mod team;
