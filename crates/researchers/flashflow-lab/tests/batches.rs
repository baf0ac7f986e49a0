//! Tests of `flashflow-lab sim sample`, `batch` and `report`.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn sim(action: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    command.args(["sim", action]).args(arguments).output().expect("it starts")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Writes two networks that differ only in their schedulers: four relays of a kind, and clients that download small files.
fn networks(folder: &Path) -> [PathBuf; 2] {
    ["kist", "vanilla"].map(|scheduler| {
        let path = folder.join(format!("{scheduler}.toml"));
        let relays = |kind| {
            format!("[[relays]]\ncount = 4\ncountry = \"DE\"\nmbit_per_s = 50\n{kind} = true\n")
        };
        let scenario = format!(
            "[choices]\nscheduler = \"{scheduler}\"\nloss_at_300_ms = 0.0\nramp_s = 2\n{}{}
[[servers]]\ncountry = \"US\"\nmbit_per_s = 1000
[[clients]]\ncount = 8\ncountry = \"DE\"\nmbit_per_s = 100
fetch = {{ every_s = 3, sizes = [{{ bytes = 51200, timeout_s = 15 }}] }}\n",
            relays("guard"),
            relays("exit"),
        );
        fs::write(&path, scenario).expect("a scenario");
        path
    })
}

fn batch(networks: &[PathBuf; 2], out: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["--run-seconds", "21", "--seeds", "2", "--json", "--out", text(out)];
    for network in networks {
        arguments.extend(["--network", text(network)]);
    }
    arguments.extend(more);
    sim("batch", &arguments)
}

fn runs(out: &Path) -> Vec<String> {
    let all = fs::read_dir(out.join("batch-runs")).expect("a folder");
    let mut all: Vec<String> = all
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn shards_on_two_machines_make_the_same_report_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let networks = networks(folder.path());
    let at = |name: &str| folder.path().join(name);
    let all = batch(&networks, &at("alone"), &[]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    let expected =
        ["kist-100-1.json", "kist-100-2.json", "vanilla-100-1.json", "vanilla-100-2.json"];
    assert_eq!(runs(&at("alone")), expected);
    for shard in ["1/2", "2/2"] {
        let out = at(&shard.replace('/', "-"));
        let output = batch(&networks, &out, &["--shard", shard]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(runs(&out).len(), 2);
        let answer = lines(&output).pop().expect("a summary").to_string();
        assert!(answer.contains("2 runs of"), "{answer}");
    }
    let folders = [at("1-2"), at("2-2")];
    let merged = at("merged");
    let arguments = [text(&folders[0]), text(&folders[1]), "--json", "--out", text(&merged)];
    let report = sim("report", &arguments);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    for file in ["batch.html", "batch-times-last-byte-50kib.csv", "batch-throughput.svg"] {
        assert!(merged.join(file).is_file(), "{file}");
    }
    // The last digit of values that were read from files may differ.
    let table = |out: &Path| -> Vec<String> {
        let text = fs::read_to_string(out.join("batch.csv")).expect("a table");
        let rounded = |cell: &str| match cell.parse::<f64>() {
            Ok(value) => format!("{value:.9}"),
            Err(_) => cell.to_owned(),
        };
        text.lines().map(|row| row.split(',').map(rounded).collect::<Vec<_>>().join(",")).collect()
    };
    let (alone, merged) = (table(&at("alone")), table(&merged));
    let is_there = |words: &str| alone.iter().any(|row| row.contains(words));
    let load = "100.000000000,,";
    assert!(is_there(&format!("change,vanilla,kist,{load}last_byte_50_kib_s,%,")), "{alone:?}");
    assert!(is_there(&format!("mean,kist,,{load}goodput_mbit_per_s,")), "{alone:?}");
    assert_eq!(alone, merged);
}

#[test]
fn an_interrupted_batch_resumes_and_a_changed_network_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let networks = networks(folder.path());
    let out = folder.path().join("out");
    let first = batch(&networks, &out, &["--shard", "1/4"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    // A file that was incomplete at a crash has no name yet. Completed runs are not repeated.
    fs::write(out.join("batch-runs/.tmpAbCdEf"), "{\"condi").expect("a file");
    let kept = out.join("batch-runs/kist-100-1.json");
    let changed = || fs::metadata(&kept).and_then(|metadata| metadata.modified()).expect("a time");
    let before = changed();
    let all = batch(&networks, &out, &[]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    assert_eq!(changed(), before);
    let message = stderr(&all);
    assert!(message.contains("run 2 of 4") && !message.contains("run 1 of 4"), "{message}");
    // Another network with the same name and number of hosts.
    let scenario = fs::read_to_string(&networks[0]).expect("a scenario");
    fs::write(&networks[0], scenario.replace("mbit_per_s = 50", "mbit_per_s = 51")).expect("it");
    let other = batch(&networks, &out, &[]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    assert!(stderr(&other).contains("another batch"), "{other:?}");
    fs::write(&kept, "{\"conditions\":").expect("a file");
    let cut = sim("report", &[text(&out), "--out", text(&out)]);
    assert_eq!(cut.status.code(), Some(1), "{cut:?}");
    assert!(stderr(&cut).contains("remove it"), "{cut:?}");
}

#[test]
fn errors_of_reports_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = sim("report", &[text(folder.path())]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(stderr(&nothing).contains("batch-runs"), "{nothing:?}");
    let twice = ["--network", "a/x.toml", "--network", "b/x.toml"];
    let missing = sim("batch", &twice);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot read a/x.toml"), "{missing:?}");
}

#[test]
fn a_sampled_network_can_be_simulated() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data");
    let consensus = data.join("consensus/2020-02-29-10-00-00-consensus");
    if !consensus.is_file() {
        skip::this_test!("it needs a whole consensus in ../shared/data/consensus");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("tor.toml");
    let descriptors = data.join("descriptors/2020-02-29-10-05-00-server-descriptors");
    let (conf, countries) = (data.join("tornet-0.05-1/conf"), data.join("relays/relays-2018.csv"));
    let arguments = |scale| {
        [
            "--consensus",
            text(&consensus),
            "--descriptors",
            text(&descriptors),
            "--countries",
            text(&countries),
            "--models",
            text(&conf),
            "--scale",
            scale,
            "--json",
            "--out",
            text(&out),
        ]
    };
    let drawn = sim("sample", &arguments("0.005"));
    assert_eq!(drawn.status.code(), Some(0), "{drawn:?}");
    let printed = lines(&drawn).pop().expect("a line");
    let number = |name: &str| printed[name].as_u64().expect("a number");
    // A two-hundredth of 6,400 relays, 7,920 processes of users and 800 benchmarks.
    assert!((28..=36).contains(&number("relays")), "{printed}");
    assert_eq!(number("clients"), 40 + 4);
    assert!(number("guessed_countries") < number("relays"), "{printed}");
    let network = ["--network", text(&out), "--seconds", "8", "--json"];
    let ended = sim("run", &network);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let summary = lines(&ended).pop().expect("a summary");
    assert!(summary["model_streams"].as_u64() > Some(0), "{summary}");
    let tiny = sim("sample", &arguments("0.0001"));
    let problem = sim("sample", &arguments("0"));
    assert_eq!((tiny.status.code(), problem.status.code()), (Some(0), Some(2)), "{tiny:?}");
}

#[test]
fn errors_of_samples_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("no-consensus");
    fs::write(&file, "nothing of the kind\n").expect("a file");
    let out = folder.path().join("out.toml");
    let arguments = ["--consensus", text(&file), "--scale", "0.1", "--out", text(&out)];
    let refused = sim("sample", &arguments);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no-consensus"), "{refused:?}");
    assert!(!out.exists());
}
