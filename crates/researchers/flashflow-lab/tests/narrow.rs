//! `flashflow-lab experiment bottleneck`, on separate hosts.

use testbin::{Scratch, lacking, text};

#[test]
fn whose_link_is_narrow_and_whose_path_is_broken_is_named_and_the_relays_own_link_is_its_capacity()
{
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment bottleneck --quick --places relay,measurer,breaks,all,coordinator --limit 60 --link 25 --measurer 8 \
                     --seconds 10 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), "bottleneck");
    let [nowhere, relay, measurer, breaks, all, coordinator] =
        summary["cases"].as_array().expect("cases").as_slice()
    else {
        panic!("{summary}");
    };
    // On a busy machine the measurer itself is the bottleneck, and is named; no path is.
    for case in [nowhere, relay] {
        let named = text(case, "named");
        assert!(named.is_empty() || named.contains("processor"), "{case}");
    }
    assert_eq!(relay["truth_mbit_per_s"], 25.0);
    let named = text(measurer, "named");
    let is_it = named.contains("the path of measurer 1 held it back");
    // On a busy machine the name may be missing: then the detail says which process waited.
    let was_busy = text(measurer, "detail").contains("processor");
    assert!(is_it || was_busy || named.contains("processor"), "{measurer}");
    let named = text(breaks, "named");
    assert!(named.contains("measurer 1: another measurer reaches the relay"), "{breaks}");
    let named = text(all, "named");
    assert!(named.contains("the load stopped"), "{all}");
    let named = text(coordinator, "named");
    assert!(named.contains("the coordinator can no longer reach the relay"), "{coordinator}");
    // A busy machine may make relays slower, but nothing makes them faster than their limit.
    for case in [nowhere, relay, measurer, breaks, all, coordinator] {
        let figure = |key: &str| case[key].as_f64().unwrap_or_else(|| panic!("{key} of {case}"));
        let limit = if text(case, "narrow") == "the relay's link" { 25.0 } else { 60.0 };
        // Tokens that accumulate while the relay waits for a processor are added.
        assert!(figure("estimate_mbit_per_s") < 1.15 * limit, "{case}");
        // Conclusive results are correct on any machine.
        assert!(case["conclusive"] == false || figure("ratio") > 0.9, "{case}");
    }
}
