//! All targets over the corpus, and over mutations of it that are the same in each run.

use fuzz::{Mutator, TARGETS, Target, corpus};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs a target; if it panics, leaves the input where it can be replayed.
fn run(name: &str, target: Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-broken"));
        std::fs::write(&path, input).expect("written");
        panic!("{name} is broken by {} ({} bytes)", path.display(), input.len());
    }
}

/// The corpus, and this many mutations of it.
fn replay(name: &str, mutations: u32) {
    let target = TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target").1;
    let files = corpus(name).expect("a corpus of each target");
    assert!(!files.is_empty());
    for (_, content) in &files {
        run(name, target, content);
    }
    let contents = files.into_iter().map(|(_, content)| content).collect();
    let mut mutator = Mutator::new(0x5eed, contents);
    for _ in 0..mutations {
        run(name, target, &mutator.next_input());
    }
}

macro_rules! replays {
    ($($name:ident: $mutations:expr,)*) => {
        $(#[test] fn $name() { replay(stringify!($name), $mutations); })*

        #[test]
        fn every_target_is_replayed_and_has_a_program() {
            let replayed = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|(name, _)| name), replayed);
            let manifest = include_str!("../Cargo.toml");
            for name in replayed {
                assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
                let program = std::fs::read_to_string(folder.join(name).with_extension("rs"));
                assert!(program.expect("a program").contains(&format!("fuzz::target!(fuzz::{name});")));
            }
        }
    };
}

replays! {
    framer: 10_000,
    messages: 20_000,
    certs: 2_000,
    channel_initiator: 2_000,
    channel_responder: 2_000,
    two_hop: 5_000,
    transit: 1_000,
    echo: 1_000,
    order: 3_000,
    consensus: 3_000,
    descriptors: 3_000,
    bandwidth_file: 10_000,
    control_port: 10_000,
    measurement: 10_000,
    router: 2_000,
    seam: 10_000,
    control_plane: 20_000,
    flow_control: 5_000,
    cgo: 2_000,
    consdiff: 5_000,
    conflux: 2_000,
    begin_dir: 10_000,
    signed_documents: 10_000,
    model: 5_000,
}

#[test]
fn the_seeds_are_in_the_corpus() {
    for (target, name, content) in fuzz::seeds() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target).join(name);
        let found = std::fs::read(&file).expect("seeded: cargo run -p fuzz --example seed");
        assert_eq!(found, content, "{} is outdated", file.display());
    }
}
