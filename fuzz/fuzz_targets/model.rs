//! `cargo fuzz run model`, or without the fuzzer: `cargo run -p fuzz --bin model FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::model);
