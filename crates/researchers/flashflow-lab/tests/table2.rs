//! Small runs of `flashflow-lab experiment table2`.

use serde_json::Value;
use testbin::{Scratch, number, text};

#[test]
fn balancers_are_compared_under_the_attacks_that_concern_them() {
    let scratch = Scratch::new();
    let arguments = "experiment table2 --balancers torflow,flashflow --attacks false-report,client-claims,fast-when-measured \
                     --relays 100 --seeds 3 --loads 50 --json --out out";
    let ended = scratch.run_experiment(arguments);
    ended.assert_code(0);
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let case = |balancer: &str, attack: &str| {
        let is_it =
            |case: &&Value| text(case, "balancer") == balancer && text(case, "attack") == attack;
        cases.iter().find(is_it)
    };
    assert_eq!(cases.len(), 5, "TorFlow asks nobody about clients: {summary}");
    assert!(case("torflow", "client-claims").is_none());
    let lying = case("torflow", "false-report").expect("a case");
    assert!(number(lying, "advantage_low") > 10.0, "{lying}");
    assert_eq!((text(lying, "capacity_values"), &lying["verdict"]), ("unavailable", &Value::Null));
    let bounded = case("flashflow", "client-claims").expect("a case");
    assert!((1.2..=1.34).contains(&number(bounded, "advantage")), "{bounded}");
    assert_eq!(text(bounded, "verdict"), "held");
    assert!(number(bounded, "hours_until_all") > 0.0, "{bounded}");
    let conceded = case("flashflow", "fast-when-measured").expect("a case");
    assert!((1.7..2.2).contains(&number(conceded, "advantage")), "{conceded}");
    assert!(scratch.path("out").join("table2.html").is_file());
    // The same seeds have the same results.
    let again = scratch.run_experiment(&arguments.replace("--out out", "--out again"));
    assert_eq!(again.summary()["cases"], summary["cases"]);
}

#[test]
fn unknown_attacks_and_loads_are_refused() {
    let scratch = Scratch::new();
    scratch.run(&["experiment", "table2", "--attacks", "kindness"]).assert_code(2);
    scratch.run(&["experiment", "table2", "--loads", "none"]).assert_code(2);
}
