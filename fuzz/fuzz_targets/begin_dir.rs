//! `cargo fuzz run --features targets begin_dir`, or without the fuzzer: `cargo run -p fuzz --features targets --bin begin_dir FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::begin_dir);
