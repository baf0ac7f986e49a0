//! `cargo fuzz run --features targets echo`, or without the fuzzer: `cargo run -p fuzz --features targets --bin echo FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::echo);
