//! `cargo fuzz run control_plane`, or without the fuzzer: `cargo run -p fuzz --bin control_plane FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::control_plane);
