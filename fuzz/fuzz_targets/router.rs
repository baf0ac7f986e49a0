//! `cargo fuzz run --features targets router`, or without the fuzzer: `cargo run -p fuzz --features targets --bin router FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::router);
