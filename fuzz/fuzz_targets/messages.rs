//! `cargo fuzz run --features targets messages`, or without the fuzzer: `cargo run -p fuzz --features targets --bin messages FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::messages);
