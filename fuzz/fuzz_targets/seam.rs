//! `cargo fuzz run --features targets seam`, or without the fuzzer: `cargo run -p fuzz --features targets --bin seam FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::seam);
