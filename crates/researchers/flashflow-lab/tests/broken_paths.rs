//! Measurements over failing paths.

use serde_json::Value;
use testbin::{Scratch, lacking, number, text};

fn case<'s>(summary: &'s Value, fault: &str) -> &'s Value {
    let cases = summary["cases"].as_array().expect("cases");
    let found = cases.iter().find(|case| case["fault"] == fault);
    found.unwrap_or_else(|| panic!("no case {fault} in {summary:#}"))
}

#[test]
fn a_broken_path_ends_with_a_reason_in_time_and_reordering_gives_no_wrong_number() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment wan --modes echo --limits 40 --rtts-ms 20 --losses-percent 0 --congestions reno \
                     --faults reorders,breaks-out,breaks-back,loses-all --seconds 8 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    for fault in ["breaks in the forward direction", "breaks in the return direction"] {
        let case = case(&summary, fault);
        assert_failed_as(case, "measurer", "the load stopped: the path to the relay broke");
    }
    let lost = case(&summary, "loses all");
    assert_failed_as(lost, "relay", "the relay cannot be reached");
    let shuffled = case(&summary, "reordered");
    assert_ne!(text(shuffled, "ended"), "missed", "{shuffled}");
    assert!(number(shuffled, "estimate_mbit_per_s") > 0.0, "{shuffled}");
}

/// Asserts that the measurement ends in time without an estimate, with this reason and this blamed party.
fn assert_failed_as(case: &Value, blame: &str, reason: &str) {
    assert_eq!(text(case, "ended"), "held", "{case}");
    assert_eq!(text(case, "verdict"), "failed", "{case}");
    assert_eq!(text(case, "blame"), blame, "{case}");
    assert!(text(case, "detail").contains(reason), "{case}");
}

/// A round of 16 s is longer than the timeout of silence.
#[test]
fn a_path_to_a_c_tor_relay_that_breaks_in_either_direction_is_distinguished_from_a_hanging_relay() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment wan --modes transit --limits 40 --rtts-ms 20 --losses-percent 0 --congestions reno \
                     --faults breaks-out,breaks-back,stops --seconds 16 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    for fault in ["breaks in the forward direction", "breaks in the return direction"] {
        let case = case(&summary, fault);
        assert_failed_as(case, "measurer", "the load stopped: the path to the relay broke");
    }
    assert_failed_as(case(&summary, "the relay stops"), "relay", "the relay stalled");
}
