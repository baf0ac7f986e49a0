//! `cargo fuzz run --features targets consensus`, or without the fuzzer: `cargo run -p fuzz --features targets --bin consensus FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::consensus);
