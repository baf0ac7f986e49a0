//! A small run of `flashflow-lab experiment plan-attacks`.

use serde_json::Value;
use testbin::{Scratch, number, text};

#[test]
fn the_plan_is_played_against_part_time_relays_and_bursts() {
    let scratch = Scratch::new();
    let arguments = "experiment plan-attacks --attacks single-periods,bursts --authorities 1,6 --periods 2000 --out out --json";
    let ended = scratch.run_experiment(arguments);
    ended.assert_code(0);
    let summary = ended.values().pop().expect("a summary");
    assert_eq!((text(&summary, "experiment"), &summary["held"]), ("plan-attacks", &true.into()));
    let cases = summary["cases"].as_array().expect("cases");
    let of = |attack: &str| -> Vec<&Value> {
        cases.iter().filter(|case| case["attack"] == attack).collect()
    };
    // Seven shares of fast slots; buckets of three depths, measurements of three lengths, one or two relays.
    assert_eq!((of("single-periods").len(), of("bursts").len()), (2 * 7, 3 * 3 * 2));
    for case in of("single-periods") {
        let failed = number(case, "failed_share_random_slots");
        assert!((failed - number(case, "binomial_share")).abs() < 0.06, "{case}");
    }
    assert!(scratch.path("out/plan-attacks.html").is_file());

    // The same command has nothing left to do.
    let again = scratch.run_experiment(arguments);
    assert!(again.error.contains("5 of them were finished before"), "{}", again.error);
    assert_eq!(again.values().pop().expect("a summary")["cases"], summary["cases"]);
}

#[test]
fn unknown_attacks_and_too_many_authorities_are_refused() {
    let scratch = Scratch::new();
    let run = |option, value| scratch.run(&["experiment", "plan-attacks", option, value]);
    run("--attacks", "kindness").assert_refused(&["kindness", "part-time"]);
    run("--authorities", "16").assert_refused(&["16", "1..=15"]);
}
