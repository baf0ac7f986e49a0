//! Experiments with relays that have clients and with those who lie, and what echoing costs: small
//! ones, as people and scripts run them. What comes of them depends on the machine; their shape does not.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{Ended, Place, number, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// The summary of an experiment, with what must be so of any.
#[track_caller]
fn summary(place: &Place, ended: &Ended, name: &str) -> Value {
    place.assert_clean();
    ended.assert_no_panic();
    let summary = ended.summary();
    assert_eq!((text(&summary, "type"), text(&summary, "experiment")), ("summary", name));
    let held = summary["held"].as_bool().expect("a truth value");
    assert_eq!(ended.code, Some(i32::from(!held)), "{summary:#}");
    let told = ended.values();
    let (_, told) = told.split_last().expect("output");
    let cases = cases(&summary);
    assert_eq!(told.len(), cases.len(), "each case is told once, as it ends");
    for (case, told) in cases.iter().zip(told) {
        assert_eq!(told["type"], "case");
        for field in ["name", "truth_mbit_per_s", "estimate_mbit_per_s", "ratio", "verdict"] {
            assert!(case.get(field).is_some(), "no {field} in {case}");
            assert_eq!(case[field], told[field]);
        }
    }
    let page = fs::read_to_string(place.path("out").join(format!("{name}.html"))).expect("a page");
    assert!(page.contains(text(&cases[0], "name")));
    summary
}

fn cases(summary: &Value) -> &Vec<Value> {
    summary["cases"].as_array().expect("a list")
}

#[track_caller]
fn case<'s>(summary: &'s Value, name: &str) -> &'s Value {
    let found = cases(summary).iter().find(|case| case["name"] == name);
    found.unwrap_or_else(|| panic!("no case {name} in {summary:#}"))
}

#[test]
fn clients_and_a_measurement_share_a_relay_in_a_figure() {
    let place = Place::new();
    let arguments = ["experiment", "ratio", "--json", "--out", "out"];
    let small = ["--seconds", "3", "--around", "3", "--limit", "40"];
    let ended = place.run(&[&arguments[..], &small].concat());
    eprintln!("it took {:?}", ended.took);
    let summary = summary(&place, &ended, "ratio");
    assert_eq!(cases(&summary).len(), 10);
    for r in ["0.1", "0.25"] {
        let sum = case(&summary, &format!("r = {r}: sum as forwarded"));
        assert!(number(sum, "truth_mbit_per_s") > 0.0 && number(sum, "estimate_mbit_per_s") > 0.0);
        let estimate = case(&summary, &format!("r = {r}: estimate as the limit"));
        assert_eq!(estimate["truth_mbit_per_s"], 40.0);
        let figure = format!("ratio-figure-7-r-{}", r.replace('.', "-"));
        let points = fs::read_to_string(place.path("out").join(format!("{figure}.csv")));
        let points = points.expect("a table");
        assert!(points.lines().any(|line| line.starts_with("measurement,")), "{points}");
        assert!(place.path("out").join(format!("{figure}.svg")).exists());
    }
}

#[test]
fn those_who_lie_are_found_out_or_refused_by_number() {
    let place = Place::new();
    let arguments = ["experiment", "adversary", "--json", "--out", "out"];
    let small = ["--seconds", "3", "--limit", "40", "--forgers", "20"];
    let few = ["--only", "honest,forges,over-reports-alone"];
    let ended = place.run(&[&arguments[..], &small, &few].concat());
    eprintln!("it took {:?}", ended.took);
    let summary = summary(&place, &ended, "adversary");
    let forger = case(&summary, "forges");
    assert_eq!(text(forger, "verdict"), "refused", "{forger}");
    assert!(text(forger, "detail").contains("wrong content"), "{forger}");
    assert_eq!(case(&summary, "honest")["truth_mbit_per_s"], 40.0);
    let boaster = case(&summary, "over-reports-alone");
    assert!(number(boaster, "ratio") <= 1.05 / 0.75, "{boaster}");

    let of_kind = |kind: &'static str| cases(&summary).iter().filter(move |it| it["kind"] == kind);
    assert_eq!(of_kind("relay").count(), 3);
    assert_eq!(of_kind("party").count(), 14);
    for party in of_kind("party") {
        assert_eq!(text(party, "verdict"), "refused", "{party}");
        assert_eq!(party.get("error"), party.get("expected_error"), "{party}");
    }
    let numbers: Vec<f64> = of_kind("evasion").filter_map(|it| it["evasion"].as_f64()).collect();
    assert_eq!(numbers.len(), 7);
    assert!(numbers.is_sorted_by(|few, many| few >= many), "{numbers:?}");
    for file in ["gains.csv", "gains.svg", "evasion.csv", "evasion.svg"] {
        assert!(place.path("out").join(format!("adversary-{file}")).exists(), "{file}");
    }
}

#[test]
fn an_experiment_that_is_interrupted_leaves_nothing() {
    for experiment in ["ratio", "adversary"] {
        let place = Place::new();
        let mut running = place.start(&["experiment", experiment, "--json", "--out", "out"]);
        running.wait_for_error("its measurers", |line| line.starts_with("2 measurers"));
        running.signal(Signal::INT);
        let ended = running.end();
        eprintln!("it took {:?}", ended.took);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        ended.assert_no_panic();
        place.assert_clean();
        assert_eq!(ended.summary()["type"], "summary");
    }
}

#[test]
fn relays_that_are_too_slow_are_not_tried() {
    let place = Place::new();
    for experiment in ["ratio", "adversary"] {
        place.run(&["experiment", experiment, "--limit", "5"]).assert_refused(&["--limit", "20"]);
    }
    let unknown = place.run(&["experiment", "adversary", "--only", "nobody"]);
    unknown.assert_refused(&["nobody", "skips-decryption"]);
    place.assert_clean();
}

#[test]
fn an_echo_is_set_beside_stock_tor() {
    let place = Place::new();
    let arguments = ["bench", "echo", "--json", "--runs", "1", "--seconds", "4"];
    let ended = place.run(&[&arguments[..], &["--capacity", "300"]].concat());
    eprintln!("it took {:?}", ended.took);
    place.assert_clean();
    ended.assert_code(0);
    let values = ended.values();
    let (summary, runs) = values.split_last().expect("output");
    let told = |run: &Value| (text(run, "relay").to_owned(), text(run, "mode").to_owned());
    let pair = |relay: &str, mode: &str| (relay.to_owned(), mode.to_owned());
    let expected = [pair("tor", "transit"), pair("ours", "echo"), pair("ours", "transit")];
    assert_eq!(runs.iter().map(told).collect::<Vec<_>>(), expected);
    for run in runs {
        assert!(number(run, "bytes") > 0.0 && number(run, "cpu_s") > 0.0, "{run}");
    }
    assert_eq!(text(summary, "type"), "summary");
    let [ours, tor, ratio] =
        ["ours_gbit_per_cpu_s", "tor_gbit_per_cpu_s", "ratio"].map(|name| number(summary, name));
    assert!(ours > 0.0 && tor > 0.0 && (ratio - ours / tor).abs() < 1e-9, "{summary}");
    assert!(number(summary, "ours_transit_gbit_per_cpu_s") > 0.0);
    assert_eq!((summary["runs"].as_u64(), summary["seconds"].as_u64()), (Some(1), Some(4)));
}
