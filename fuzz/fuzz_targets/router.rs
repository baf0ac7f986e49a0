//! `cargo fuzz run router`, or without the fuzzer: `cargo run -p fuzz --bin router FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::router);
