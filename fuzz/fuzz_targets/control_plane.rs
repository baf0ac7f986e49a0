//! `cargo fuzz run --features targets control_plane`, or without the fuzzer: `cargo run -p fuzz --features targets --bin control_plane FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::control_plane);
