//! `cargo fuzz run measurement`, or without the fuzzer: `cargo run -p fuzz --bin measurement FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::measurement);
