//! Tests of `flashflow-lab sim`.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testbin::Scratch;

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tornet/examples/small.toml")
}

fn simulate(network: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["sim", "run", "--network"]).arg(network).args(more);
    command.output().expect("it starts")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_last_line_of_a_simulation_is_a_summary() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let more = ["--seconds", "115", "--threads", "2", "--seed", "5", "--json", "--out", out];
    let output = simulate(&small(), &more);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = lines(&output);
    let [downloads, summary] = &lines[..] else { panic!("two lines: {lines:?}") };
    assert_eq!(downloads["type"], "downloads");
    assert_eq!((&downloads["bytes"], &downloads["timed_out"]), (&1_048_576.into(), &0.into()));
    assert!(downloads["complete"].as_u64() >= Some(35), "{downloads}");
    assert_eq!(summary["type"], "summary");
    for name in ["wall_s", "simulated_s", "wall_s_per_simulated_s", "cell_hops", "ns_per_cell_hop"]
    {
        assert!(summary[name].as_f64() > Some(0.0), "{name} in {summary}");
    }
    let transfers = std::fs::read_to_string(folder.path().join("transfers.csv")).expect("a file");
    let complete = transfers.lines().filter(|line| line.ends_with(",complete")).count() as u64;
    assert_eq!(Some(complete), downloads["complete"].as_u64());
    let file = std::fs::read(folder.path().join("summary.json")).expect("a file");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!((&file["fingerprint"], &file["seed"]), (&summary["fingerprint"], &5.into()));
    let version = file["version"].as_str().expect("text");
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")) && version.contains('('), "{version}");
    // The manual lists its fields.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/simulation.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let size = file["downloads"][0].as_object().expect("a size");
    for name in file.as_object().expect("an object").keys().chain(size.keys()) {
        assert!(page.contains(&format!("`{name}`")), "docs/simulation.md has no {name}");
    }
    let alone = simulate(&small(), &["--seconds", "115", "--seed", "5", "--json"]);
    let same = &self::lines(&alone)[1]["fingerprint"];
    assert_eq!(same, &summary["fingerprint"], "another number of threads is another run");
}

#[test]
fn errors_are_named() {
    let nowhere = simulate(Path::new("/nowhere"), &["--json"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert_eq!(lines(&nowhere)[0]["type"], "error");
    let message = String::from_utf8_lossy(&nowhere.stderr);
    assert!(message.contains("there is no sample /nowhere; if it is one"), "{message}");
    let folder = tempfile::tempdir().expect("a folder");
    let empty = simulate(folder.path(), &[]);
    let message = String::from_utf8_lossy(&empty.stderr);
    assert!(message.contains("neither scenario.toml nor shadow.config.yaml"), "{message}");
    let load = simulate(&small(), &["--load", "nan"]);
    assert_eq!(load.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&load.stderr).contains("--load NaN: must be above 0"));
    assert_eq!(simulate(&small(), &["--threads", "0"]).status.code(), Some(2));
}

/// All clients of this network are benchmarks, which `--load` does not change.
#[test]
fn a_load_that_would_change_nothing_is_refused() {
    let load = simulate(&small(), &["--load", "1.5"]);
    assert_eq!(load.status.code(), Some(2));
    let message = String::from_utf8_lossy(&load.stderr);
    assert!(message.contains("--load 1.5") && message.contains("all clients fetch"), "{message}");
    let same = simulate(&small(), &["--load", "1", "--seconds", "2"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let mut batch = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    batch.args(["sim", "batch", "--loads", "100,130", "--seeds", "1", "--network"]).arg(small());
    let batch = batch.arg("--out").arg(folder.path()).output().expect("it starts");
    let message = String::from_utf8_lossy(&batch.stderr);
    assert!(batch.status.code() == Some(2) && message.contains("--loads 130"), "{message}");
}

#[test]
fn the_files_of_an_earlier_run_are_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let run = |seed: &str| simulate(&small(), &["--seconds", "2", "--out", out, "--seed", seed]);
    let read = || std::fs::read_to_string(folder.path().join("relays.csv")).expect("it is there");
    assert_eq!(run("1").status.code(), Some(0));
    let first = read();
    let second = run("2");
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(
        second.status.code() == Some(1)
            && message.contains("summary.json: the folder has an earlier run"),
        "{message}"
    );
    assert_eq!(read(), first);
}

#[test]
fn hop_by_hop_windows_settle_at_the_optimum_for_any_position_of_the_bottleneck() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["experiment", "circuitstart", "--stars", "1", "--narrow", "20", "--json"]);
    command.args(["--worlds", "simulated"]);
    let output = command.arg("--out").arg(folder.path()).output().expect("it starts");
    let summary = lines(&output).pop().expect("a summary");
    let cases = summary["cases"].as_array().expect("cases");
    let traces: Vec<&Value> = cases.iter().filter(|case| case["distance_hops"].is_u64()).collect();
    assert_eq!(traces.len(), 3);
    for case in traces {
        let number = |name: &str| case[name].as_f64().expect("a number");
        let waiting = number("settled_kb") - number("optimal_kb");
        // At most four cells wait at the next hop, and rounding.
        assert!((-0.1..=2.2).contains(&waiting), "{case}");
        assert!(number("time_to_settle_ms") < 400.0, "{case}");
    }
    let median = |begin: &str| {
        let case = cases.iter().find(|case| case["begin"] == begin).expect("a case");
        case["median_ttlb_s"].as_f64().expect("a number")
    };
    assert!(median("circuitstart") < 0.8 * median("backtap"), "{summary}");
    assert!(folder.path().join("circuitstart.html").is_file());
    // A doubled bottleneck rate is found soon, at any position.
    let widened: Vec<&Value> = cases.iter().filter(|case| case["widened_hops"].is_u64()).collect();
    assert_eq!(widened.len(), 3);
    for case in widened {
        let round_trips = case["reached_after_round_trips"].as_f64().expect("a number");
        // Three calm rounds are required, so that noise is not mistaken for it. With 10 Mbit/s it takes at most five
        // (docs/results/hop-windows.md), one hop away at 20 Mbit/s more.
        assert!(round_trips > 0.0 && round_trips <= 6.0, "{case}");
    }
    // The JSON output.
    assert_eq!(summary["traces"].as_array().map(Vec::len), Some(3), "{summary}");
    assert!(summary["star"]["largest_gain_s"].as_f64() > Some(0.5), "{summary}");
}

#[test]
fn hop_by_hop_windows_are_compared_with_vegas_in_a_whole_network() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["experiment", "circuitstart", "--quick", "--json", "--network"]).arg(small());
    command.args(["--run-seconds", "60", "--seeds", "1", "--scale", "0.5"]);
    let output = command.arg("--out").arg(folder.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = lines(&output).pop().expect("a summary");
    let cases = summary["cases"].as_array().expect("cases");
    let of = |variant: &str, column: &str| {
        let name = format!("{variant}, load 100 %, seed 1");
        let case = cases.iter().find(|case| case["name"] == name.as_str()).expect("a case");
        case[column].as_f64().expect("a number")
    };
    for variant in ["vegas", "fixed", "circuitstart", "vegas-circuitstart"] {
        assert!(of(variant, "last_byte_1024_kib_s") > 0.0, "{variant}: {summary}");
    }
    // Four different networks.
    let sent = ["vegas", "fixed", "circuitstart"].map(|variant| of(variant, "queue_ms"));
    assert!(sent[0] != sent[1] && sent[1] != sent[2], "{sent:?}");
}

#[test]
fn downloads_over_linked_circuits_are_faster_in_virtual_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["experiment", "conflux", "--simulated", "--sizes", "0.4", "--legs", "2,3"]);
    command.args(["--runs", "6", "--json", "--out"]).arg(folder.path());
    let output = command.output().expect("it starts");
    let summary = lines(&output).pop().expect("a summary");
    let cases = summary["cases"].as_array().expect("cases");
    let case = |client: &str, legs: u64| {
        let is_it = |case: &&Value| case["client"] == client && case["legs"] == legs;
        cases.iter().find(is_it).unwrap_or_else(|| panic!("{client}, {legs}: {summary}"))
    };
    let number = |case: &Value, name: &str| case[name].as_f64().expect("a number");
    let plain = case("plain", 1);
    assert!(plain["change_against_tor_percent"].is_null(), "{plain}");
    for legs in [2, 3] {
        let case = case("ours", legs);
        assert_eq!((&case["runs"], &case["failed"]), (&6.into(), &0.into()), "{case}");
        let change = number(case, "mean_s") / number(plain, "mean_s") - 1.0;
        assert!(change < -0.1, "{case}");
        assert!(
            (change * 100.0 - number(case, "change_against_tor_percent")).abs() < 0.5,
            "{case}"
        );
        assert!(number(case, "interval") > 0.0 && number(case, "median_s") > 0.0, "{case}");
    }
    assert_eq!(cases.len(), 4, "plain, fixed windows, two and three legs");
    assert!(folder.path().join("conflux-simulated.html").is_file());
}

#[test]
fn a_network_is_exported_for_shadow() {
    if Command::new("tor-gencert").arg("--version").output().is_err() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let export = |network: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
        command.args(["sim", "export", "--json", "--network"]).arg(network);
        command.arg("--shadow").arg(&out).output().expect("it starts")
    };
    let exported = export(&small());
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    assert_eq!(lines(&exported)[0]["relays"], 30);
    let refused = export(&small());
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("is not empty"), "{message}");
    let ended = simulate(&out, &["--seconds", "20", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn kist_is_compared_by_shares_of_relays_and_attacks() {
    let scratch = Scratch::new();
    let arguments = "experiment kist-factors --studies shares,attacks --seeds 1 --run-seconds 30 --out out --json";
    let summary = scratch.run_experiment(arguments).values().pop().expect("a summary");
    let cases = summary["cases"].as_array().expect("cases");
    let count = |field: &str| cases.iter().filter(|case| case.get(field).is_some()).count();
    // A quarter, a half, three quarters, all; three attacks with three schedulers other than Vanilla.
    assert_eq!((count("scene"), count("trend"), count("attack")), (4, 1, 9), "{summary}");
    for case in cases.iter().filter(|case| case.get("attack").is_some()) {
        assert!((0.0..=1.0).contains(&testbin::number(case, "area")), "{case}");
    }
    // Runs are stored, and the report of stored runs is the same.
    let again = scratch.run_experiment(arguments).values().pop().expect("a summary");
    assert_eq!(again["cases"], summary["cases"]);
}
