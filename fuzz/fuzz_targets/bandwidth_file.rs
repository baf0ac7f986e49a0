//! `cargo fuzz run --features targets bandwidth_file`, or without the fuzzer: `cargo run -p fuzz --features targets --bin bandwidth_file FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::bandwidth_file);
