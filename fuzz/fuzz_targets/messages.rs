//! `cargo fuzz run messages`, or without the fuzzer: `cargo run -p fuzz --bin messages FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::messages);
