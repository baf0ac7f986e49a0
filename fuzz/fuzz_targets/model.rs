//! `cargo fuzz run --features targets model`, or without the fuzzer: `cargo run -p fuzz --features targets --bin model FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::model);
