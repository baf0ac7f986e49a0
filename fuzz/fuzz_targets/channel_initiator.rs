//! `cargo fuzz run --features targets channel_initiator`, or without the fuzzer: `cargo run -p fuzz --features targets --bin channel_initiator FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::channel_initiator);
