//! `cargo fuzz run --features targets measurement`, or without the fuzzer: `cargo run -p fuzz --features targets --bin measurement FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::measurement);
