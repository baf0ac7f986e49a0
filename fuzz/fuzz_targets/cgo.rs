//! `cargo fuzz run --features targets cgo`, or without the fuzzer: `cargo run -p fuzz --features targets --bin cgo FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::cgo);
