//! `cargo fuzz run --features targets descriptors`, or without the fuzzer: `cargo run -p fuzz --features targets --bin descriptors FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::descriptors);
