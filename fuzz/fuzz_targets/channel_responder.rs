//! `cargo fuzz run channel_responder`, or without the fuzzer: `cargo run -p fuzz --bin channel_responder FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::channel_responder);
