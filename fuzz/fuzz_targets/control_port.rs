//! `cargo fuzz run control_port`, or without the fuzzer: `cargo run -p fuzz --bin control_port FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::control_port);
