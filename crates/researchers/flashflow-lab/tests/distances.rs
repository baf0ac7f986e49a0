//! `flashflow-lab experiment client-impact` and `paper-hosts`, over emulated distances.

use serde_json::Value;
use testbin::{Scratch, lacking, number, text};

fn run(scratch: &Scratch, name: &str, options: &str) -> Vec<Value> {
    let arguments = format!("experiment {name} --quick {options} --out results --json");
    let ended = scratch.run_experiment(&arguments);
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), name);
    summary["cases"].as_array().expect("cases").clone()
}

#[test]
fn a_c_tor_client_downloads_through_distant_relays_of_both_kinds_in_each_position() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let cases =
        run(&scratch, "client-impact", "--rtts-ms 20 --losses-percent 0 --runs 1 --bytes 500000");
    let places: Vec<&str> = cases.iter().map(|case| text(case, "place")).collect();
    assert_eq!(places, ["guard", "middle", "exit"]);
    for case in &cases {
        assert_ne!(text(case, "verdict"), "failed", "{case}");
        for who in ["tor", "ours"] {
            let rate = number(case, &format!("{who}_low_mbit_per_s"));
            // At least three round trips.
            assert!(rate > 0.0 && rate < 0.5 * 8.0 / 0.06, "{case}");
            assert!(number(case, &format!("{who}_to_first_byte_s")) > 0.02, "{case}");
        }
    }
}

#[test]
fn the_papers_hosts_measure_a_relay_and_no_wrong_number_is_conclusive() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let cases =
        run(&scratch, "paper-hosts", "--vary multiplier --modes echo --limits 20 --seconds 8");
    let multipliers: Vec<f64> = cases.iter().map(|case| number(case, "multiplier")).collect();
    assert_eq!(multipliers, [1.5, 2.25]);
    for case in &cases {
        assert_eq!(text(case, "hosts"), "US-NW+US-E+NL+IN");
        assert_ne!(text(case, "verdict"), "failed", "{case}");
        // Not the ratio, because the truth was measured on this machine as well.
        assert!(
            number(case, "estimate_mbit_per_s") < 20.0 * 1.06,
            "nothing makes a relay faster than its limit: {case}"
        );
    }
}
