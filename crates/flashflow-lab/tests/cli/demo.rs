//! `flashflow-lab demo`.

use netdoc::bwfile::check_as_tor;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use testbin::{Ended, Scratch, assert_estimate, is_second, number, text, wait_for};

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

#[test]
fn the_folder_of_a_kept_network_is_printed_and_its_processes_end() {
    let scratch = Scratch::new();
    let arguments = "demo --keep --limits 10 --echo-limits none --seconds 3";
    let ended = scratch.run(&arguments.split(' ').collect::<Vec<_>>());
    ended.assert_code(0);
    assert_eq!(scratch.processes(), []);
    let networks = scratch.networks();
    let [folder] = &networks[..] else { panic!("{networks:?}") };
    assert!(ended.error.contains(folder.to_str().expect("text")), "{}", ended.error);
    assert!(folder.join("relay1/log").is_file() && folder.join("auth0/torrc").is_file());
    // The same as text.
    let printed = ended.out.join("\n");
    for part in ["relay1", "all as measured", "flashflow-demo/report.html", "bandwidth file: "] {
        assert!(printed.contains(part), "{printed}");
    }
}

/// Starts a demo, stops it at some point, and returns its end.
fn stopped_demo(scratch: &Scratch, when: When, signal: Signal) -> Ended {
    // The FlashFlow relay, which runs from the start, must end as well.
    let limits = ["--limits", "10", "--echo-limits", "10"];
    let arguments = [&["demo", "--json", "--seconds", "30"][..], &limits].concat();
    let mut demo = scratch.start(&arguments);
    match when {
        When::BringUp => wait_for("a tor", || (scratch.tors() > 0).then_some(())),
        When::Measurement => demo.wait_for_out("a second", is_second),
    }
    demo.signal(signal);
    let ended = demo.end();
    ended.assert_no_panic();
    ended
}

enum When {
    BringUp,
    Measurement,
}

#[test]
fn an_interrupt_during_start_up_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::BringUp, Signal::INT);
    ended.assert_code(130);
    scratch.wait_until_clean();
}

#[test]
fn an_interrupt_during_a_measurement_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::Measurement, Signal::INT);
    ended.assert_code(130);
    // It has cleaned up itself: nothing is left to the keeper.
    scratch.assert_clean();
    assert!(ended.error.contains("interrupted"), "{}", ended.error);
    assert!(!ended.out.iter().any(|line| line.contains("summary")), "{:?}", ended.out);
}

#[test]
fn a_killed_demo_leaves_nothing() {
    let scratch = Scratch::new();
    let ended = stopped_demo(&scratch, When::Measurement, Signal::KILL);
    assert_eq!(ended.code, None);
    scratch.wait_until_clean();
}

#[test]
fn an_unusable_output_folder_is_reported_before_a_network_starts() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file"), "").expect("written");
    let ended = scratch.run(&["demo", "--limits", "10", "--out", "file/below"]);
    ended.assert_refused(&["file/below"]);
    assert_eq!(ended.code, Some(1));
    scratch.assert_clean();
}
