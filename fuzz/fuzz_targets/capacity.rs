//! `cargo fuzz run --features targets capacity`, or without the fuzzer: `cargo run -p fuzz --features targets --bin capacity FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::capacity);
