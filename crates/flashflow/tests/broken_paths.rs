//! Measurements over paths on which something goes wrong.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{Scratch, lacking, number, text};
use serde_json::Value;

fn case<'s>(summary: &'s Value, fault: &str) -> &'s Value {
    let cases = summary["cases"].as_array().expect("cases");
    let found = cases.iter().find(|it| it["fault"] == fault);
    found.unwrap_or_else(|| panic!("no case {fault} in {summary:#}"))
}

#[test]
fn a_path_that_breaks_gives_a_reason_in_time_and_one_that_shuffles_packets_no_wrong_number() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment paths --modes echo --limits 40 --rtts-ms 20 --losses-percent 0 --congestions reno \
                     --faults reorders,duplicates,returns,breaks,breaks-out,breaks-back,loses-all --seconds 8 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    eprintln!("it took {:?}", ended.took);
    ended.assert_no_panic();
    scratch.assert_clean();
    let summary = ended.summary();
    for fault in ["breaks", "breaks on the way out", "breaks on the way back"] {
        let case = case(&summary, fault);
        assert_failed_as(case, "measurer", "the load stopped");
    }
    assert_failed_as(case(&summary, "loses all"), "relay", "the relay cannot be reached");
    let gone = case(&summary, "gone for two seconds");
    assert_ne!(text(gone, "ended"), "missed", "{gone}");
    for fault in ["reordered", "duplicated"] {
        let case = case(&summary, fault);
        assert_ne!(text(case, "ended"), "missed", "{case}");
        assert!(number(case, "estimate_mbit_per_s") > 0.0, "{case}");
    }
}

/// No number, and in time; who is to blame, and what is said.
fn assert_failed_as(case: &Value, blame: &str, reason: &str) {
    assert_eq!(text(case, "ended"), "held", "{case}");
    assert_eq!(text(case, "verdict"), "failed", "{case}");
    assert_eq!(text(case, "blame"), blame, "{case}");
    assert!(text(case, "detail").contains(reason), "{case}");
}

/// In 16 seconds the round is not over before the silence is long enough to be told.
#[test]
fn a_stock_relay_to_which_nothing_gets_any_more_is_not_said_to_stall() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment paths --modes transit --limits 40 --rtts-ms 20 --losses-percent 0 --congestions reno \
                     --faults breaks-out --seconds 16 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    eprintln!("it took {:?}", ended.took);
    ended.assert_no_panic();
    scratch.assert_clean();
    assert_failed_as(case(&ended.summary(), "breaks on the way out"), "measurer", "the load stopped");
}
