//! Minimal runs of the experiments `accuracy` and `concurrent`.

use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use testbin::{Ended, Scratch, number, text};

/// Asserts that each case is a line, that the summary has the same cases, and that the exit status reports whether all held. That depends on
/// the load of this machine.
fn assert_cases(ended: &Ended, experiment: &str, names: &[&str]) -> Vec<Value> {
    let values = ended.values();
    let (summary, printed) = values.split_last().expect("output");
    assert_eq!(text(summary, "type"), "summary");
    assert_eq!(text(summary, "experiment"), experiment);
    assert!(!text(summary, "answer").is_empty());
    let held = summary["held"].as_bool().expect("a truth value");
    ended.assert_code(if held { 0 } else { 1 });
    let cases = summary["cases"].as_array().expect("a list");
    let all: Vec<&str> = cases.iter().map(|case| text(case, "name")).collect();
    assert_eq!(all, names);
    assert_eq!(printed.len(), cases.len());
    for (printed, case) in printed.iter().zip(cases) {
        assert_eq!(text(printed, "type"), "case");
        let fields = case.as_object().expect("an object");
        assert!(fields.iter().all(|(name, value)| printed[name] == *value), "{printed} {case}");
        let ratio = number(case, "ratio");
        let quotient = number(case, "estimate_mbit_per_s") / number(case, "truth_mbit_per_s");
        assert!((ratio - quotient).abs() < 1e-9);
        let is_near = (0.90..=1.05).contains(&ratio);
        match text(case, "verdict") {
            "held" => assert!(is_near && case["conclusive"] != false, "{case}"),
            "inconclusive" => assert!(is_near, "{case}"),
            "missed" => assert!(!is_near || case["over_alone"].is_number(), "{case}"),
            other => panic!("{other}: {case}"),
        }
        // The estimate belongs to this relay and team. A burst of one second raises one of five seconds, or two on a busy machine.
        assert!((0.6..1.25).contains(&ratio), "{case}");
        // The estimate agrees with the kernel's counter of the relay's process.
        let of_sent = number(case, "estimate_mbit_per_s") / number(case, "kernel_sent_mbit_per_s");
        assert!((0.85..1.15).contains(&of_sent), "{of_sent}: {case}");
    }
    cases.clone()
}

fn assert_files(scratch: &Scratch, names: &[&str]) {
    let entries = fs::read_dir(scratch.path("out")).expect("a folder");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("listed").file_name().into_string().expect("text"))
        .collect();
    found.sort_unstable();
    assert_eq!(found, names);
}

#[test]
fn accuracy_measures_relays_of_known_capacity_and_leaves_nothing() {
    let scratch = Scratch::new();
    let arguments = "experiment accuracy --modes echo --limits 10 --teams 1,2 --runs 1 --seconds 5 \
                     --out out --json";
    let ended = scratch.run(&arguments.split_ascii_whitespace().collect::<Vec<_>>());
    scratch.assert_clean();
    let names = ["echo 10 Mbit/s, 1 measurer, run 1", "echo 10 Mbit/s, 2 measurers, run 1"];
    let cases = assert_cases(&ended, "accuracy", &names);
    for (case, measurers) in cases.iter().zip([1, 2]) {
        assert_eq!(case["truth_mbit_per_s"], 10.0);
        assert_eq!(case["measurers"], measurers);
        assert_eq!(case["mode"], "echo");
        // The relay counts the same cells as the measurers.
        let reported = number(case, "relay_reported_mbit_per_s");
        assert!((0.85..1.15).contains(&(reported / number(case, "estimate_mbit_per_s"))), "{case}");
    }
    assert_files(
        &scratch,
        &[
            "accuracy-by-team.csv",
            "accuracy-by-team.svg",
            "accuracy-figure-6.csv",
            "accuracy-figure-6.svg",
            "accuracy-runs",
            "accuracy.csv",
            "accuracy.html",
            "accuracy.json",
        ],
    );
}

#[test]
fn concurrent_measures_two_relays_separately_and_simultaneously() {
    let scratch = Scratch::new();
    let arguments =
        "experiment concurrent --relays 2 --total 20 --runs 1 --seconds 5 --out out --json";
    let ended = scratch.run(&arguments.split_ascii_whitespace().collect::<Vec<_>>());
    scratch.assert_clean();
    let names = [
        "relay 1 of 2, alone",
        "relay 2 of 2, alone",
        "2 at once, relay 1, run 1",
        "2 at once, relay 2, run 1",
    ];
    let cases = assert_cases(&ended, "concurrent", &names);
    for case in &cases[..2] {
        assert_eq!((&case["relays_at_once"], &case["together_s"]), (&json!(1), &Value::Null));
    }
    for case in &cases[2..] {
        assert_eq!(case["relays_at_once"], 2);
        assert!(number(case, "together_s") > 0.0, "they were not at the same time: {case}");
        assert!(number(case, "over_alone") > 0.3, "{case}");
    }
    // The team just suffices: two relays do not fit into one measurer.
    assert!(cases[2..].iter().any(|case| case["measurers"] == 2), "{cases:#?}");
    assert_files(
        &scratch,
        &[
            "concurrent-ratios.csv",
            "concurrent-ratios.svg",
            "concurrent-runs",
            "concurrent-seconds-2.csv",
            "concurrent-seconds-2.svg",
            "concurrent.csv",
            "concurrent.html",
            "concurrent.json",
        ],
    );
}

#[test]
fn an_interrupted_experiment_reports_its_results_and_leaves_nothing() {
    let experiments = [
        "experiment accuracy --modes echo --limits 10 --teams 1 --seconds 120 --out out --json",
        "experiment concurrent --relays 2 --total 20 --seconds 120 --out out --json",
    ];
    for arguments in experiments {
        let scratch = Scratch::new();
        let mut running = scratch.start(&arguments.split_ascii_whitespace().collect::<Vec<_>>());
        running.wait_for_error("the beginning", |line| line.contains("120 s each"));
        running.signal(Signal::INT);
        let ended = running.end();
        ended.assert_code(130);
        assert_eq!(ended.summary()["type"], "summary");
        assert_eq!(ended.summary()["cases"], json!([]));
        scratch.assert_clean();
        assert!(scratch.path("out").is_dir());
    }
}

#[test]
fn invalid_options_are_refused_before_anything_is_started() {
    let scratch = Scratch::new();
    let cases: &[(&str, &[&str])] = &[
        ("accuracy --limits 0", &["--limits", "`none`"]),
        ("accuracy --limits ten", &["--limits", "ten"]),
        ("accuracy --teams 0", &["--teams", "0"]),
        ("accuracy --seconds 2", &["--seconds", "2"]),
        ("accuracy --modes udp", &["--modes", "udp"]),
        ("concurrent --relays 0", &["--relays", "0"]),
        ("concurrent --relays 8 --total 7", &["--total", "7"]),
        ("concurrent --total nan", &["--total", "NaN"]),
    ];
    for (arguments, parts) in cases {
        let arguments: Vec<&str> =
            std::iter::once("experiment").chain(arguments.split_ascii_whitespace()).collect();
        scratch.run(&arguments).assert_refused(parts);
    }
    scratch.assert_clean();
    assert!(!scratch.path("flashflow-experiments").exists());
}
