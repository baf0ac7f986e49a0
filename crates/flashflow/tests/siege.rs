//! `flashflow experiment siege`, small: attacks really come, by the kernel's word, and honest clients are watched.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{Scratch, number, text};
use serde_json::Value;
use std::fs;

#[test]
fn honest_clients_are_served_and_watched_while_a_relay_is_attacked() {
    let scratch = Scratch::new();
    let ended = scratch.run(&[
        "experiment",
        "siege",
        "--attacks",
        "begin-dir-flood,padding-flood",
        "--relays",
        "ours",
        "--seconds",
        "4",
        "--rate",
        "5",
        "--demand",
        "4",
        "--quick",
        "--json",
        "--out",
        "out",
    ]);
    eprintln!("it took {:?}", ended.took);
    scratch.assert_clean();
    ended.assert_no_panic();
    let summary = ended.summary();
    assert_eq!((text(&summary, "type"), text(&summary, "experiment")), ("summary", "siege"));
    let cases = summary["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| text(case, "attack")).collect();
    assert_eq!(names, ["begin-dir-flood", "padding-flood"]);
    for case in cases {
        assert_eq!(text(case, "relay"), "ours");
        // Not "failed": peace was peace, and the kernel saw the attack at the relay.
        assert!(["held", "missed"].contains(&text(case, "verdict")), "{case}");
        assert_eq!(case["held"], Value::from(text(case, "verdict") == "held"), "{case}");
        // Some may have had to come again.
        assert!((20.0..=30.0).contains(&number(case, "attacker_links")), "{case}");
        assert!(number(case, "attacker_mbit_per_s") <= 5.5, "the purse: {case}");
        assert!(number(case, "witnessed_mb") > 0.3, "{case}");
        assert!(number(case, "attacker_cells") > 300.0, "{case}");
        assert!((20.0..=30.0).contains(&number(case, "witnessed_connections")), "{case}");
        // A tenth of what an attacker may send stops nobody.
        assert!(number(case, "honest_circuits_alive_share") >= 0.9, "{case}");
        assert!(number(case, "honest_throughput_share") > 0.3, "{case}");
        assert!(number(case, "circuits_stood") >= 20.0, "{case}");
        assert!(number(case, "build_time_ms") > 0.0, "{case}");
        let memory = number(case, "peak_memory_mib");
        assert!((5.0..300.0).contains(&memory), "{case}");
        assert!(memory >= number(case, "memory_before_mib"), "{case}");
    }
    let page = fs::read_to_string(scratch.path("out").join("siege.html")).expect("a page");
    assert!(page.contains("padding-flood on ours"));
    assert!(scratch.path("out").join("siege-padding-flood.csv").is_file());
}

#[test]
fn what_is_no_attack_is_refused() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["experiment", "siege", "--attacks", "kindness"]);
    ended.assert_code(2);
}

#[test]
fn a_relay_lives_on_from_attack_to_attack_and_its_memory_is_watched() {
    let scratch = Scratch::new();
    let ended = scratch.run(&[
        "experiment",
        "soak",
        "--attacks",
        "create2-flood",
        "--rounds",
        "2",
        "--seconds",
        "3",
        "--rate",
        "5",
        "--demand",
        "4",
        "--json",
        "--out",
        "out",
    ]);
    eprintln!("it took {:?}", ended.took);
    scratch.assert_clean();
    ended.assert_no_panic();
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| text(case, "name")).collect();
    assert_eq!(names, ["round 1: create2-flood", "round 2: create2-flood"]);
    for case in cases {
        assert!(["held", "missed"].contains(&text(case, "verdict")), "{case}");
        assert!(number(case, "honest_circuits_alive_share") >= 0.9, "{case}");
        assert!(number(case, "witnessed_mb") > 0.1, "{case}");
    }
    // It read its configuration again and again, and its memory was seen once a second.
    let memory = fs::read_to_string(scratch.path("out").join("soak-memory.csv")).expect("drawn");
    assert!(memory.lines().count() > 15, "{memory}");
    assert!(text(&summary, "answer").contains("in 2 of 2 rounds"), "{summary}");
}
