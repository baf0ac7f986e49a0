//! `cargo fuzz run seam`, or without the fuzzer: `cargo run -p fuzz --bin seam FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::seam);
