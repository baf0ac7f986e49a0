//! `cargo fuzz run --features targets certs`, or without the fuzzer: `cargo run -p fuzz --features targets --bin certs FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::certs);
