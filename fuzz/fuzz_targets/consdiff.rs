//! `cargo fuzz run --features targets consdiff`, or without the fuzzer: `cargo run -p fuzz --features targets --bin consdiff FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::consdiff);
