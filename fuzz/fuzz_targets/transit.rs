//! `cargo fuzz run transit`, or without the fuzzer: `cargo run -p fuzz --bin transit FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::transit);
