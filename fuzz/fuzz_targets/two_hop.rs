//! `cargo fuzz run --features targets two_hop`, or without the fuzzer: `cargo run -p fuzz --features targets --bin two_hop FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::two_hop);
