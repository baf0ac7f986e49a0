//! `cargo fuzz run consdiff`, or without the fuzzer: `cargo run -p fuzz --bin consdiff FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::consdiff);
