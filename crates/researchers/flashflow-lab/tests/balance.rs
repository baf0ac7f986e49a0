//! Tests of `flashflow-lab experiment balance` and `kist --network`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn experiment(name: &str, out: &Path, (run_s, more): (&str, &[&str])) -> Output {
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tornet/examples/small.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["experiment", name, "--quick", "--json", "--network"]).arg(network);
    command.args(["--scale", "0.4", "--run-seconds", run_s, "--seeds", "1"]);
    command.arg("--out").arg(out).args(more);
    command.output().expect("it starts")
}

fn balance(out: &Path, more: &[&str]) -> Output {
    let mut all = vec!["--seconds", "3"];
    all.extend(more);
    experiment("balance", out, ("60", &all))
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn files(out: &Path, folder: &str) -> Vec<String> {
    let all = std::fs::read_dir(out.join(folder)).expect("a folder");
    let mut all: Vec<String> = all
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn shards_run_each_case_once_and_make_one_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    // One balancer of three: an incomplete report says so, and has the existing results.
    let first = balance(out, &["--shard", "3/3"]);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let ours = ["flashflow-100-1.json", "weights-flashflow-1.json"];
    assert_eq!(files(out, "balance-runs"), ours);
    let printed = lines(&first);
    let answer = printed.last().expect("a summary").to_string();
    assert!(answer.contains("Only 1 of 3 runs"), "{answer}");
    let path = out.join("balance-runs").join(ours[0]);
    let kept = std::fs::read(&path).expect("a run");
    let changed = |path: &Path| {
        std::fs::metadata(path).and_then(|metadata| metadata.modified()).expect("a time")
    };
    let before = changed(&path);
    let all = balance(out, &[]);
    assert_eq!((std::fs::read(&path).expect("a run"), changed(&path)), (kept, before));
    assert_eq!(files(out, "balance-runs").len(), 6, "runs and weights: {all:?}");
    let printed = lines(&all);
    let runs = printed.iter().filter(|line| line["seed"] == 1).count();
    assert_eq!(runs, 3, "{printed:?}");
    // What the items of papers look for.
    let number = |name: &str, field: &str| {
        let case = printed.iter().find(|line| line["name"] == name);
        case.and_then(|case| case[field].as_f64()).unwrap_or_else(|| panic!("{name}: {printed:?}"))
    };
    assert!(number("weights of flashflow", "capacity_error_median_percent") > 0.0);
    assert!(number("weights of torflow", "under_weighted_percent") > 0.0);
    assert!(number("downloads with ideal at a load of 100 %", "last_byte_1024_kib_s") > 0.0);
    let change = number("1 MiB download faster at a load of 100 %", "change_percent");
    assert!((-90.0..900.0).contains(&change), "{change}");
    assert_eq!(printed.last().map(|line| line["type"].clone()), Some("summary".into()));
    let table = std::fs::read_to_string(out.join("balance.csv")).expect("a table");
    let claim = table.lines().find(|row| row.contains("network weight error is at most"));
    assert!(claim.is_some_and(|claim| claim.contains("held")), "{table}");
    let page = std::fs::read_to_string(out.join("balance.html")).expect("a page");
    assert!(page.contains("Relay weight error") && page.contains("Time to the last byte of 1 MiB"));
    for figure in ["figure-8a", "figure-8b", "figure-9a-last-byte-1mib", "figure-9b", "figure-9c"] {
        assert!(out.join(format!("balance-{figure}.svg")).is_file(), "{figure}");
    }
    let other = experiment("balance", out, ("61", &["--seconds", "3"]));
    let message = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && message.contains("--out"), "{message}");
}

#[test]
fn schedulers_are_compared_over_a_whole_network() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = experiment("kist", folder.path(), ("60", &[]));
    let expected = ["kist-100-1.json", "kist-lite-100-1.json", "vanilla-100-1.json"];
    assert_eq!(files(folder.path(), "kist-runs"), expected, "{output:?}");
    let table = std::fs::read_to_string(folder.path().join("kist-network.csv")).expect("a table");
    for claim in [
        "kist against vanilla, load 100 %: median time to the first byte of 1 MiB: at most +2 %",
        "kist-lite against vanilla, load 100 %: throughput of relays, median of seconds: at least -3 %",
        "kist against vanilla, load 100 %: mean time of a cell in relays' queues and kernels: at most +2 %",
    ] {
        assert!(table.contains(claim), "{table}");
    }
}

#[test]
fn a_missing_network_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["experiment", "balance", "--out"]).arg(folder.path());
    let output = command.output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("--network PATH"), "{message}");
}
