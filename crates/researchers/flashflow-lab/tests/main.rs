//! Tests of the researchers' program.
//!
//! They are one program, because linking is slow. `scripts/lanes` lists when each file runs.

mod adversity;
mod anonymity;
mod balance;
mod batches;
mod benches;
mod broken_paths;
mod circuitstart;
mod cli;
mod client;
mod conformance;
mod continued;
mod demo;
mod detection;
mod distances;
mod documented_commands;
mod dos;
mod experiment_accuracy;
mod kill;
mod kist;
mod lab_path;
mod narrow;
mod networks;
mod pages;
mod papers;
mod patched_tor;
mod paths;
mod plan_attacks;
mod probe;
mod selection;
mod serving;
mod simulate;
mod table2;
mod webpage;
