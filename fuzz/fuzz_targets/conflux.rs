//! `cargo fuzz run --features targets conflux`, or without the fuzzer: `cargo run -p fuzz --features targets --bin conflux FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::conflux);
