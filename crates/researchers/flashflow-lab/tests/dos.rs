//! Small runs of `flashflow-lab experiment dos`: attacks reach the relay according to the kernel, and honest clients are measured.

use serde_json::Value;
use std::fs;
use testbin::{Scratch, number, text};

#[test]
fn honest_clients_are_served_and_measured_during_an_attack() {
    let scratch = Scratch::new();
    // So little memory that idle circuits fill it in seconds.
    let ended = scratch.run_experiment(
        "experiment dos --attacks idle-fast,directory-slow --relays ours --memory 64 --seconds 3 --rate 40 --demand 4 --quick --json --out out",
    );
    let summary = ended.summary();
    assert_eq!((text(&summary, "type"), text(&summary, "experiment")), ("summary", "dos"));
    let cases = summary["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| text(case, "attack")).collect();
    assert_eq!(names, ["idle-fast", "directory-slow"]);
    for case in cases {
        assert_eq!(text(case, "relay"), "ours");
        // Not "failed": the phase before the attack was undisturbed, and the kernel saw the attack at the relay.
        assert!(["held", "missed"].contains(&text(case, "verdict")), "{case}");
        assert_eq!(case["held"], Value::from(text(case, "verdict") == "held"), "{case}");
        assert!(number(case, "attacker_mbit_per_s") <= 44.0, "the purse: {case}");
        assert!(number(case, "witnessed_mb") > 0.3, "{case}");
        assert!(number(case, "honest_circuits_alive_share") >= 0.9, "{case}");
        assert!(number(case, "honest_throughput_share") > 0.3, "{case}");
        assert!(number(case, "circuits_open_before") >= 20.0, "{case}");
        assert!(number(case, "build_time_ms") > 0.0, "{case}");
        assert!(number(case, "directory_requests") >= 5.0, "{case}");
        let memory = number(case, "peak_memory_mib");
        assert!((5.0..300.0).contains(&memory), "{case}");
        assert!(memory >= number(case, "memory_before_mib"), "{case}");
    }
    let [idle, slow] = &cases[..] else { panic!("{cases:?}") };
    // Some links may have been opened again.
    assert!((40.0..=50.0).contains(&number(idle, "attacker_links")), "{idle}");
    assert!((40.0..=50.0).contains(&number(idle, "witnessed_connections")), "{idle}");
    // More than half of 64 MiB by the relay's own account.
    assert!(number(idle, "attacker_cells") > 21_000.0, "{idle}");
    assert!((20.0..=30.0).contains(&number(slow, "attacker_links")), "{slow}");
    assert!(number(idle, "directory_answers_share") >= 0.8, "{idle}");
    assert!(number(slow, "attacker_requests") > 1_200.0, "{slow}");
    let page = fs::read_to_string(scratch.path("out").join("dos.html")).expect("a page");
    assert!(page.contains("idle-fast on ours"));
    assert!(scratch.path("out").join("dos-idle-fast.csv").is_file());
}

#[test]
fn unknown_attacks_are_refused() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["experiment", "dos", "--attacks", "kindness"]);
    ended.assert_code(2);
}

#[test]
fn a_relay_survives_consecutive_attacks_and_its_memory_is_recorded() {
    let scratch = Scratch::new();
    let ended = scratch.run_experiment(
        "experiment soak --attacks directory-work --rounds 2 --seconds 3 --rate 5 --demand 4 --json --out out",
    );
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| text(case, "name")).collect();
    assert_eq!(names, ["round 1: directory-work", "round 2: directory-work"]);
    for case in cases {
        assert!(["held", "missed"].contains(&text(case, "verdict")), "{case}");
        assert!(number(case, "honest_circuits_alive_share") >= 0.9, "{case}");
        assert!(number(case, "witnessed_mb") > 0.1, "{case}");
        assert!(number(case, "attacker_requests") > 100.0, "{case}");
    }
    // It reloaded its configuration repeatedly, and its memory was sampled once a second.
    let memory = fs::read_to_string(scratch.path("out").join("soak-memory.csv")).expect("drawn");
    assert!(memory.lines().count() > 15, "{memory}");
    let answer = text(&summary, "answer");
    for part in ["in 2 of 2 rounds", "3 onion keys", "followed 2 changes of the consensus"] {
        assert!(answer.contains(part), "{summary}");
    }
}
