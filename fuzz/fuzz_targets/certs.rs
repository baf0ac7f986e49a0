//! `cargo fuzz run certs`, or without the fuzzer: `cargo run -p fuzz --bin certs FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::certs);
