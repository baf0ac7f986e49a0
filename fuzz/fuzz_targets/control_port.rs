//! `cargo fuzz run --features targets control_port`, or without the fuzzer: `cargo run -p fuzz --features targets --bin control_port FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::control_port);
