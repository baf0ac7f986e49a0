//! `flashflow-lab experiment circuitstart`, over real relays at hosts of their own. How soon windows settle is an exact claim in virtual time: `simulate.rs`.

use testbin::{Scratch, lacking, number, text};

/// What does not depend on how fast this machine is: that circuits over real links have windows that grow from two cells on, that cells come through the narrow place and no more than
/// it lets through, and that each distance has rows of the network and of the model.
#[test]
fn windows_of_real_relays_are_traced_beside_the_models() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment circuitstart --quick --stars 1 --stretch 2 --out results --json";
    let ended = scratch.run(&arguments.split_whitespace().collect::<Vec<_>>());
    ended.assert_no_panic();
    scratch.assert_clean();
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let real: Vec<_> =
        cases.iter().filter(|it| it["mode"] == "real" && it["distance_hops"].is_u64()).collect();
    assert_eq!(real.len(), 3, "{summary}");
    for (distance, case) in (1..).zip(real) {
        assert_eq!(case["distance_hops"], distance, "{case}");
        assert_ne!(text(case, "verdict"), "failed", "{case}");
        let used = number(case, "narrow_used");
        assert!(used > 0.0 && used < 1.06, "{case}");
        // It begins with two cells of 512 bytes.
        let largest = number(case, "optimal_kb") + number(case, "overshoot_kb");
        assert!(number(case, "settled_kb") > 1.1 && largest > 1.1, "{case}");
        assert!(number(case, "simulated_kb") > 1.1, "{case}");
    }
    let widened = cases.iter().filter(|it| it["mode"] == "real" && it["widened_hops"].is_u64());
    assert_eq!(widened.count(), 3, "{summary}");
    assert_eq!(summary["traces"].as_array().map(Vec::len), Some(6), "{summary}");
}
