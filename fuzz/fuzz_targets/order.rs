//! `cargo fuzz run order`, or without the fuzzer: `cargo run -p fuzz --bin order FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::order);
