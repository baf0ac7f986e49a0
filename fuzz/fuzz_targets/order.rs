//! `cargo fuzz run --features targets order`, or without the fuzzer: `cargo run -p fuzz --features targets --bin order FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::order);
