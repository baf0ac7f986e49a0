//! A small run of `flashflow-lab experiment detection`.

use serde_json::Value;
use testbin::{Scratch, number, text};

#[test]
fn relays_that_drop_all_else_are_found_in_a_small_network() {
    let scratch = Scratch::new();
    let arguments = "experiment detection --relays 200 --days 60 --out out --json";
    let ended = scratch.run_experiment(arguments);
    ended.assert_code(0);
    let summary = ended.values().pop().expect("a summary");
    assert_eq!((text(&summary, "experiment"), &summary["held"]), ("detection", &true.into()));
    let cases = summary["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 9 + 3);
    let case_of_lie = |lie: &str| -> &Value {
        let has_lie = |case: &&Value| case["lie"] == lie && case["circuits_a_relay_and_day"] == 6;
        cases.iter().find(has_lie).expect("a case")
    };
    assert!(case_of_lie("none")["found_in_a_week_share"].is_null());
    assert_eq!(number(case_of_lie("none"), "honest_relays"), 200.0);
    assert!(number(case_of_lie("drop-all"), "found_in_a_week_share") >= 0.9);
    let half = case_of_lie("drop-half");
    assert!(number(half, "found_share") > number(half, "found_in_a_week_share"), "{half}");
    assert!(scratch.path("out/detection-found.svg").is_file());
}
