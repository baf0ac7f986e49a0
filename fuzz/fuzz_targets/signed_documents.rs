//! `cargo fuzz run signed_documents`, or without the fuzzer: `cargo run -p fuzz --bin signed_documents FILE...`
#![cfg_attr(fuzzing, no_main)]

fuzz::target!(fuzz::signed_documents);
