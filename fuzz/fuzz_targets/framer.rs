//! `cargo fuzz run --features targets framer`, or without the fuzzer: `cargo run -p fuzz --features targets --bin framer FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::framer);
