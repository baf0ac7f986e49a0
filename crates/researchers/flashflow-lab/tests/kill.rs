//! `flashflow-lab experiment crash`, with a victim of each kind.

use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use testbin::{Scratch, number, text};

#[test]
fn after_a_kill_of_any_victim_the_others_end_and_nothing_is_left() {
    let scratch = Scratch::new();
    let ended = scratch
        .run_experiment("experiment crash --rounds 3 --seconds 3 --seed 1 --out results --json");
    ended.assert_code(0);
    let summary = ended.summary();
    assert_eq!((text(&summary, "experiment"), &summary["held"]), ("crash", &true.into()));
    let cases = summary["cases"].as_array().expect("cases");
    // The first round, without a kill, determines the duration. Each other round has a victim; if the victim had ended before, the round is
    // repeated.
    assert_eq!((text(&cases[0], "victim"), &cases[0]["control"]), ("nobody", &true.into()));
    let killed: Vec<&Value> = cases.iter().filter(|case| case["control"] == false).collect();
    assert_eq!(killed.len(), 3, "{summary}");
    assert!(killed.iter().all(|case| number(case, "killed_at_s") >= 0.0));
    let victims: BTreeSet<&str> = killed.iter().map(|case| text(case, "victim")).collect();
    assert!(["coordinator", "target"].iter().all(|victim| victims.contains(victim)), "{victims:?}");
    assert!(victims.iter().any(|victim| victim.starts_with("measurer ")), "{victims:?}");
    // From the kernel, which neither relay nor measurers can mislead.
    let control = &cases[0];
    // If the machine pauses, the result is a lower bound.
    let is_conclusive = control["conclusive"] == true;
    let least = if is_conclusive { 0.9 } else { 0.0 };
    assert!((least..=1.05).contains(&number(control, "ratio_to_received")), "{control}");
    assert!((0.1..=1.05).contains(&number(control, "ratio_received_to_allowed")), "{control}");
    for case in cases {
        match text(case, "verdict") {
            "held" if text(case, "victim") == "nobody" => {
                assert!(!is_conclusive || number(case, "estimate_mbit_per_s") > 20.0, "{case}");
            }
            "held" => {}
            "refused" => assert!(!text(case, "error").is_empty(), "{case}"),
            other => panic!("{other}: {case}"),
        }
    }
    // Each case was printed when it ended.
    let output = ended.values().iter().filter(|value| value["type"] == "case").count();
    assert_eq!(output, cases.len());
    for file in ["crash.html", "crash.json"] {
        assert!(scratch.path("results").join(file).is_file(), "{file}");
    }
    let files = fs::read_dir(scratch.path("results")).expect("a folder");
    let names: Vec<String> = files
        .map(|file| file.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    for figure in ["crash-to-end.svg", "crash-moments.svg"] {
        assert!(names.iter().any(|name| name == figure), "{names:?}");
    }
}

#[test]
fn an_interrupted_experiment_leaves_nothing() {
    let scratch = Scratch::new();
    let mut running =
        scratch.start(&["experiment", "crash", "--quick", "--out", "results", "--json"]);
    running.wait_for_out("the first round", |line| line.contains(r#""type":"case""#));
    running.signal(Signal::INT);
    let ended = running.end();
    ended.assert_code(130);
    scratch.wait_until_clean();
}
