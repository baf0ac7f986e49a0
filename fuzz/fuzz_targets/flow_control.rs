//! `cargo fuzz run --features targets flow_control`, or without the fuzzer: `cargo run -p fuzz --features targets --bin flow_control FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::flow_control);
