//! `cargo fuzz run capacity`, or without the fuzzer: `cargo run -p fuzz --bin capacity FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::capacity);
