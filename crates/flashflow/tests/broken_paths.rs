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
                     --faults reorders,breaks-out,breaks-back,loses-all --seconds 8 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    eprintln!("it took {:?}", ended.took);
    ended.assert_no_panic();
    scratch.assert_clean();
    let summary = ended.summary();
    for fault in ["breaks on the way out", "breaks on the way back"] {
        let case = case(&summary, fault);
        assert_failed_as(case, &["the load stopped", "the relay did not report"]);
    }
    assert_failed_as(case(&summary, "loses all"), &["the relay cannot be reached"]);
    let shuffled = case(&summary, "reordered");
    assert_ne!(text(shuffled, "ended"), "missed", "{shuffled}");
    assert!(number(shuffled, "estimate_mbit_per_s") > 0.0, "{shuffled}");
}

/// No number, and in time; one of these reasons, and somebody to look at.
fn assert_failed_as(case: &Value, reasons: &[&str]) {
    assert_eq!(text(case, "ended"), "held", "{case}");
    assert_eq!(text(case, "verdict"), "failed", "{case}");
    assert!(["relay", "measurer"].contains(&text(case, "blame")), "{case}");
    assert!(reasons.iter().any(|it| text(case, "detail").contains(it)), "{case}");
}

/// In 16 seconds the round is not over before the silence is long enough to be told. Where the relay had taken all and closed its windows just before, the measurers
/// cannot tell a path that broke from a relay that stalls.
#[test]
fn a_path_to_a_stock_relay_that_breaks_on_the_way_out_gives_a_reason_in_time() {
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
    let summary = ended.summary();
    let case = case(&summary, "breaks on the way out");
    assert_failed_as(case, &["the load stopped", "the relay stalled"]);
}
