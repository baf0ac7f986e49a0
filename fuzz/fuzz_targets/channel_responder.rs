//! `cargo fuzz run --features targets channel_responder`, or without the fuzzer: `cargo run -p fuzz --features targets --bin channel_responder FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::channel_responder);
