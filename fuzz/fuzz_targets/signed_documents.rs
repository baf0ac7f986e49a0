//! `cargo fuzz run --features targets signed_documents`, or without the fuzzer: `cargo run -p fuzz --features targets --bin signed_documents FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::signed_documents);
