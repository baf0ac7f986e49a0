//! `flashflow-lab experiment selection` and `cross-traffic`, in private networks.

use rustix::process::Signal;
use serde_json::Value;
use testbin::{Scratch, lacking, number, text};

const STRATEGIES: [&str; 10] = [
    "uniform",
    "weighted",
    "weighted-2007",
    "ranking",
    "latency",
    "throughput",
    "unique-continents",
    "single-continent-eu",
    "single-country-us",
    "single-country-de",
];

/// A value with its interval, where there is one, around it.
fn assert_within_its_interval(case: &Value, name: &str) {
    let value = number(case, name);
    let (low, high) = (&case[format!("{name}_low")], &case[format!("{name}_high")]);
    match (low.as_f64(), high.as_f64()) {
        (Some(low), Some(high)) => {
            assert!(low <= value && value <= high, "{case}");
            let paper = number(case, &format!("{name}_paper"));
            assert_eq!(case["paper_is_within"], (low..=high).contains(&paper), "{case}");
        }
        _ => {
            assert!(low.is_null() && high.is_null() && case["paper_is_within"].is_null(), "{case}");
        }
    }
}

/// Asserts only properties that do not depend on the load of this machine: all strategies are probed, compared and reported. The gain of
/// strategies needs more circuits.
#[test]
fn strategies_are_probed_among_users_and_compared_with_the_paper() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment selection --quick --circuits 2 --learning 4 --users 2 --bytes 20000 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), "selection");
    let cases = summary["cases"].as_array().expect("cases");
    let case = |name: &str| {
        let found = cases.iter().find(|case| text(case, "name") == name);
        found.unwrap_or_else(|| panic!("no {name}: {summary}"))
    };
    let all = STRATEGIES.map(case);
    for strategy in all {
        assert_eq!(
            (&strategy["circuits"], &strategy["failed"]),
            (&2.into(), &0.into()),
            "{strategy}"
        );
        for (value, least) in [
            ("setup_ms", "setup_ms_least"),
            ("rtt_ms", "rtt_ms_median"),
            ("throughput_kb_s", "throughput_kb_s_median"),
        ] {
            assert!(number(strategy, value) > 0.0 && number(strategy, least) > 0.0, "{strategy}");
        }
        // A uniform choice among all relays has the most possible paths.
        let bits = number(strategy, "path_bits");
        assert!(bits > 1.0 && bits <= number(all[0], "path_bits") + 1e-9, "{strategy}");
        assert!((0.0..=1.0).contains(&number(strategy, "compromised_share")), "{strategy}");
    }
    // Of eleven relays there are 11 · 10 · 9 paths of three.
    assert!((number(all[0], "path_bits") - 990_f64.log2()).abs() < 0.1, "{}", all[0]);
    assert!(number(all[1], "path_bits") < number(all[0], "path_bits") - 1.0, "{}", all[1]);
    assert!(number(all[1], "compromised_share") > number(all[0], "compromised_share"));
    for (value, column, paper) in [
        ("set-up", "setup_ms", 0.5277),
        ("round trip", "rtt_ms", 0.677),
        ("throughput", "throughput_kb_s", 4.106),
    ] {
        let ratio = case(&format!("table III: {value}, weighted over uniform"));
        let shown = number(all[1], column) / number(all[0], column);
        assert!((number(ratio, "factor") / shown - 1.0).abs() < 1e-2, "{ratio}: {shown}");
        assert!((number(ratio, "factor_paper") - paper).abs() < 1e-3, "{ratio}");
        assert_within_its_interval(ratio, "factor");
    }
    for name in ["set-up and round trip", "throughput and round trip", "set-up and throughput"] {
        let correlation = case(&format!("correlation: {name}"));
        // For two strategies, and for the probes that the model was made from.
        assert_eq!(correlation["circuits"], 8, "{correlation}");
        assert!(number(correlation, "correlation").abs() <= 1.0, "{correlation}");
        assert!(correlation["correlation_low"].is_number(), "{correlation}");
        assert_within_its_interval(correlation, "correlation");
    }
    let links = case("links' round trips");
    // Four paths of three relays, with disjoint links if possible.
    assert_eq!(links["links"], 8, "{links}");
    assert!(number(links, "within_tenth") <= 8.0 && number(links, "worst_error") >= 0.0);
    let close = number(links, "worst_error") <= 0.1;
    assert_eq!(text(links, "verdict") == "held", close, "{links}");
    let users = case("users load slow relays and no fast ones");
    assert_eq!((&users["users"], &users["failed"]), (&2.into(), &0.into()), "{users}");
    assert!(number(users, "circuits") >= 1.0 && number(users, "slow_relays_used") > 0.0, "{users}");
    for (who, factor) in [
        ("C tor", Some("C tor over no anonymity")),
        ("our client", Some("our client over no anonymity")),
        ("no anonymity", None),
    ] {
        let fetches = case(&format!("table V: headers by {who}"));
        assert_eq!((&fetches["headers"], &fetches["failed"]), (&2.into(), &0.into()), "{fetches}");
        let [least, middle, most] = ["header_s_least", "header_s_median", "header_s_most"]
            .map(|name| number(fetches, name));
        assert!(0.0 < least && least <= middle && middle <= most, "{fetches}");
        if let Some(factor) = factor {
            let of_nobody = number(case("table V: headers by no anonymity"), "header_s");
            let shown = number(fetches, "header_s") / of_nobody;
            let reported = number(case(&format!("table V: {factor}")), "factor");
            assert!((reported / shown - 1.0).abs() < 1e-2, "{reported}: {shown}");
        }
    }
    for file in ["selection.html", "selection.json", "selection.csv", "selection-figure-7.svg"] {
        assert!(scratch.path("results").join(file).is_file(), "{file}");
    }
}

#[test]
fn an_interrupted_experiment_leaves_no_process() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment selection --learning 2 --out results";
    let mut running = scratch.start(&arguments.split_whitespace().collect::<Vec<_>>());
    running.wait_for_error("users", |line| line.contains("20 users begin"));
    running.signal(Signal::INT);
    let ended = running.end();
    ended.assert_code(130);
    scratch.wait_until_clean();
}

/// With at most two penetrators, the test asserts their activity, not that they slow anything down.
#[test]
fn streams_and_circuit_builds_are_measured_with_penetrators_through_c_tor_relays_and_ours() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = "experiment cross-traffic --penetrators 0,2 --streams 1,2 --repeats 3 --bytes 100000 --out results --json";
    let ended = scratch.run_experiment(arguments);
    let summary = ended.summary();
    let cases = summary["cases"].as_array().expect("cases");
    let case = |name: &str| {
        let found = cases.iter().find(|case| text(case, "name") == name);
        found.unwrap_or_else(|| panic!("no {name}: {summary}"))
    };
    for (figure, others, levels) in [
        ("figure-1", "penetrators", [0, 2]),
        ("figure-2", "streams", [1, 2]),
        ("figure-3", "penetrators", [0, 2]),
    ] {
        for relays in ["tor", "ours"] {
            let [few, many] =
                levels.map(|level| case(&format!("{figure}: {relays}, {level} {others}")));
            for (row, level) in [few, many].into_iter().zip(levels) {
                assert_eq!((&row[others], &row["failed"]), (&level.into(), &0.into()), "{row}");
                assert!(number(row, "value") > 0.0, "{row}");
            }
            // First no penetrator, then one with continuous circuits.
            assert_eq!(number(few, "others_circuits_per_s"), 0.0, "{few}");
            if figure != "figure-2" {
                assert!(number(many, "others_circuits_per_s") > 0.0, "{many}");
            }
            let of = format!("{figure}: {relays}, {} {others} over {}", levels[1], levels[0]);
            let factor = number(case(&of), "factor");
            let shown = number(many, "value") / number(few, "value");
            assert!((factor / shown - 1.0).abs() < 1e-2, "{factor}: {shown}");
        }
        case(&format!("{figure}: ours over tor, {} {others}", levels[1]));
        assert!(scratch.path("results").join(format!("cross-traffic-{figure}.svg")).is_file());
    }
}
