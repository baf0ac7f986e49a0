//! `cargo fuzz run descriptors`, or without the fuzzer: `cargo run -p fuzz --bin descriptors FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::descriptors);
