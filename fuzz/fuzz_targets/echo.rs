//! `cargo fuzz run echo`, or without the fuzzer: `cargo run -p fuzz --bin echo FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::echo);
