//! `cargo fuzz run cgo`, or without the fuzzer: `cargo run -p fuzz --bin cgo FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::cgo);
