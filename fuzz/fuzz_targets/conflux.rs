//! `cargo fuzz run conflux`, or without the fuzzer: `cargo run -p fuzz --bin conflux FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::conflux);
