//! `cargo fuzz run framer`, or without the fuzzer: `cargo run -p fuzz --bin framer FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::framer);
