//! `cargo fuzz run channel_initiator`, or without the fuzzer: `cargo run -p fuzz --bin channel_initiator FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::channel_initiator);
