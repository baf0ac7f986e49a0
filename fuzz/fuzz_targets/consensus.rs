//! `cargo fuzz run consensus`, or without the fuzzer: `cargo run -p fuzz --bin consensus FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::consensus);
