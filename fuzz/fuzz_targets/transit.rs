//! `cargo fuzz run --features targets transit`, or without the fuzzer: `cargo run -p fuzz --features targets --bin transit FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::transit);
