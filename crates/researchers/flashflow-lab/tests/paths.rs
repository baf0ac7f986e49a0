//! `flashflow-lab experiment wan`, over an emulated distance.

use rustix::process::Signal;
use std::fs;
use testbin::{Scratch, lacking, number, text};

/// This path carries about 35 Mbit/s with half of the sockets and twice that with all, always less than the relay's capacity. The estimate is
/// that of the path, and must not be conclusive.
#[test]
fn a_limiting_path_is_named_and_no_wrong_estimate_is_conclusive() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment wan --modes echo --limits 200 --rtts-ms 300 --losses-percent 1 \
                     --congestions reno --seconds 12 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    ended.assert_no_panic();
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), "wan");
    let [case] = summary["cases"].as_array().expect("cases").as_slice() else {
        panic!("{summary}");
    };
    assert_eq!(text(case, "verdict"), "lower_bound", "{case}");
    // If the machine paused, that is the reported reason.
    let detail = text(case, "detail");
    let was_limited = detail.contains("unsteady") || detail.contains("processor");
    assert!(was_limited || text(case, "limited_by") == "path", "{case}");
    assert_eq!(text(case, "ended"), "inconclusive");
    assert!(was_limited || detail.contains("held it back"), "{case}");
    assert!(number(case, "estimate_mbit_per_s") < 0.9 * number(case, "truth_mbit_per_s"), "{case}");
    assert!(number(case, "rounds") >= 1.0, "{case}");
}

#[test]
fn an_interrupted_grid_resumes_without_repetitions_and_refuses_other_files() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let grid = |seconds: &str| {
        let arguments = "experiment wan --modes echo --limits 40 --rtts-ms 20 --losses-percent 0,0.02 \
                         --congestions reno --out results --json --seconds";
        let arguments = arguments.split_whitespace().chain([seconds]);
        arguments.map(str::to_owned).collect::<Vec<String>>()
    };
    let mut first = scratch.start(&grid("8"));
    first.wait_for_out("the first case", |line| line.contains(r#""type":"case""#));
    let kept = scratch.path("results/wan-runs/echo-40-20-ms-0-reno.json");
    testbin::wait_for("the file of the first run", || kept.exists().then_some(()));
    first.signal(Signal::INT);
    let ended = first.end();
    ended.assert_code(130);
    scratch.wait_until_clean();
    let second = scratch.path("results/wan-runs/echo-40-20-ms-0.02-reno.json");
    assert!(!second.exists(), "it was interrupted before");
    let changed = || fs::metadata(&kept).and_then(|metadata| metadata.modified()).expect("a time");
    let before = changed();

    let whole = scratch.run(&grid("8"));
    whole.assert_no_panic();
    assert_eq!(changed(), before, "completed runs are not repeated");
    assert!(second.exists());
    let cases = whole.summary()["cases"].as_array().expect("cases").clone();
    let losses: Vec<f64> = cases.iter().map(|case| number(case, "loss_percent")).collect();
    assert_eq!(losses, [0.0, 0.02]);
    let then = &ended.summary()["cases"][0];
    for key in ["estimate_mbit_per_s", "truth_mbit_per_s", "ratio", "took_s"] {
        assert!((number(&cases[0], key) - number(then, key)).abs() < 1e-9, "{key}: {then}");
    }

    let refused = scratch.run(&grid("9"));
    refused.assert_refused(&["echo-40-20-ms-0-reno.json", "belongs to other runs", "--out"]);
}
