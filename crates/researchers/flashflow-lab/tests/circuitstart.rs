//! `flashflow-lab experiment circuitstart` over real relays at separate hosts. `simulate.rs` asserts how soon windows settle, in virtual time.

use testbin::{Scratch, lacking, number, text};

/// Asserts only properties that do not depend on the speed of this machine: windows of real circuits grow from two cells on, throughput is
/// positive and within the bottleneck's rate, and each distance has rows of the network and of the model.
#[test]
fn windows_of_real_relays_are_compared_with_the_model() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment circuitstart --quick --stars 1 --stretch 2 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let real: Vec<_> = cases
        .iter()
        .filter(|case| case["mode"] == "real" && case["distance_hops"].is_u64())
        .collect();
    assert_eq!(real.len(), 3, "{summary}");
    for (distance, case) in (1..).zip(real) {
        assert_eq!(case["distance_hops"], distance, "{case}");
        assert_ne!(text(case, "verdict"), "failed", "{case}");
        let used = number(case, "narrow_used");
        assert!(used > 0.0 && used < 1.06, "{case}");
        // The first window is two cells of 512 bytes.
        let largest = number(case, "optimal_kb") + number(case, "overshoot_kb");
        assert!(number(case, "settled_kb") > 1.1 && largest > 1.1, "{case}");
        assert!(number(case, "simulated_kb") > 1.1, "{case}");
    }
    let widened =
        cases.iter().filter(|case| case["mode"] == "real" && case["widened_hops"].is_u64());
    assert_eq!(widened.count(), 3, "{summary}");
    assert_eq!(summary["traces"].as_array().map(Vec::len), Some(6), "{summary}");
}
