//! `flashflow-lab demo`, to its end. `networks` has demos that are stopped.

use netdoc::bwfile::check_as_tor;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use testbin::{Scratch, assert_estimate, number, text};

/// Checks a relay in the demo's summary.
const RELAY_FIELDS: [&str; 11] = [
    "nickname",
    "fingerprint",
    "mode",
    "limit_mbit_per_s",
    "estimate_mbit_per_s",
    "relay_reported_mbit_per_s",
    "conclusive",
    "rounds",
    "seconds",
    "cells_checked",
    "error",
];

fn assert_close(relay: &Value) {
    // The relay's own seconds are not quite ours: they come late where a machine is busy. And the estimate is no more than the
    // mean of its seconds, what it says their median.
    // A relay whose second was counted late reports more than its limit.
    let limit = relay["limit_mbit_per_s"].as_f64().unwrap_or(f64::INFINITY);
    let reported = number(relay, "relay_reported_mbit_per_s").min(limit);
    assert_estimate(relay, reported, 0.85, 0.7);
}

#[test]
fn the_demo_measures_votes_reports_and_leaves_nothing() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let limits = ["--limits", "10,50", "--echo-limits", "20"];
    let arguments = [&["demo", "--json", "--seconds", "5", "--out", "out"][..], &limits].concat();
    let ended = scratch.run(&arguments);
    eprintln!("the demo took {:?}", ended.took);
    scratch.assert_clean();
    ended.assert_measured();

    let values = ended.values();
    let (summary, before) = values.split_last().expect("output");
    let kinds = ["second", "relay", "account"];
    assert!(before.iter().all(|value| kinds.iter().any(|kind| value["type"] == *kind)));
    assert_eq!(summary["type"], "summary");
    let relays = summary["relays"].as_array().expect("a list");
    assert_eq!(relays.len(), 3);
    let expected = [(10.0, "transit"), (50.0, "transit"), (20.0, "echo")];
    for (relay, (limit, mode)) in relays.iter().zip(expected) {
        for field in RELAY_FIELDS {
            assert!(relay.get(field).is_some(), "no {field} in {relay}");
        }
        assert_close(relay);
        assert_eq!(number(relay, "limit_mbit_per_s"), limit);
        assert_eq!((&relay["mode"], &relay["error"]), (&Value::from(mode), &Value::Null));
        assert_eq!(relay["seconds"], 5);
        assert!(number(relay, "cells_checked") > 0.0 && number(relay, "rounds") >= 1.0);
        assert!(number(relay, "estimate_mbit_per_s") < limit * 1.05);
        let of_it = |value: &&Value| value["fingerprint"] == relay["fingerprint"];
        let seconds = before.iter().filter(|value| value["type"] == "second").filter(of_it);
        // A round that must be repeated ends as soon as that is certain.
        let (count, rounds) = (seconds.count() as f64, number(relay, "rounds"));
        assert!((5.0..=5.0 * rounds).contains(&count), "{count} seconds: {relay}");
    }
    assert_eq!(summary["weights_in_consensus"], true);

    let file = PathBuf::from(text(summary, "bandwidth_file"));
    assert!(file.is_absolute() && file.starts_with(out.canonicalize().expect("made")));
    let bytes = fs::read(&file).expect("the bandwidth file");
    assert_eq!(fs::read(out.join("latest.v3bw")).expect("the link"), bytes);
    let judged = check_as_tor(&bytes, link::unix_time_s());
    assert!(judged.is_clean() && judged.has_terminator, "{judged:#?}");
    assert_eq!(judged.relays.len(), 3);
    for relay in relays {
        let fingerprint = text(relay, "fingerprint").parse().expect("a fingerprint");
        // At most its rate limit.
        let capped = number(relay, "estimate_mbit_per_s").min(number(relay, "limit_mbit_per_s"));
        let expected = (capped * 1e6 / 8.0 / 1000.0).round();
        assert_eq!(f64::from(judged.relays[&fingerprint]), expected, "{relay}");
        assert_eq!(number(relay, "weight_kb_s"), expected);
        assert_eq!(number(relay, "consensus_weight_kb_s"), expected);
    }
    let report = fs::read_to_string(text(summary, "report")).expect("the report");
    for relay in relays {
        assert!(report.contains(text(relay, "nickname")));
        assert!(report.contains(text(relay, "fingerprint")));
    }
}

#[test]
fn the_quick_demo_has_a_fixed_size() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["demo", "--quick", "--json"]);
    eprintln!("the quick demo took {:?}", ended.took);
    scratch.assert_clean();
    ended.assert_measured();
    let values = ended.values();
    let summary = values.last().expect("output");
    let relays = summary["relays"].as_array().expect("a list");
    assert_eq!(relays.len(), 2, "{summary}");
    for (relay, limit) in relays.iter().zip([10.0, 50.0]) {
        assert_eq!(number(relay, "limit_mbit_per_s"), limit);
        assert_eq!((&relay["mode"], &relay["seconds"]), (&"transit".into(), &5.into()));
        assert_close(relay);
    }
    assert_eq!(summary["weights_in_consensus"], true);
    for more in [["--seconds", "10"], ["--limits", "5"], ["--echo-limits", "20"]] {
        let ended = scratch.run(&[&["demo", "--quick"][..], &more].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.error);
    }
}
