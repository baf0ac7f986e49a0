//! `flashflow bwfile`, as users call it.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const HEADER: &str =
    "1767225600\nversion=1.9.0\nnumber_eligible_relays=2\nnumber_consensus_relays=3\n=====\n";
/// An hour after the file.
const AT: [&str; 2] = ["--at", "1767229200"];

fn relay(digit: char) -> String {
    std::iter::repeat_n(digit, 40).collect()
}

fn bwfile(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow"));
    command.arg("bwfile").args(arguments).current_dir(folder);
    command.output().expect("it starts")
}

fn values(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn write(folder: &Path, name: &str, lines: &[&str]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(folder.join(name), format!("{HEADER}{text}")).expect("written");
}

#[test]
fn a_file_is_checked_as_tor_would_and_beyond() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (relay('1'), relay('2'));
    let lines = [
        &format!("node_id=${one} bw=5 nick=one"),
        &format!("node_id={two} bw=7 nick=two flashflow_mode=echo"),
    ];
    write(folder.path(), "good", &lines.map(String::as_str));
    let check = |file: &str, more: &[&str]| {
        bwfile(folder.path(), &[&["check", file, "--json"], &AT[..], more].concat())
    };
    let good = check("good", &["--strict"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let summary = &values(&good)[0];
    assert_eq!((&summary["accepted"], &summary["relays"]), (&json!(true), &json!(2)));

    let broken = format!("node_id=${one} bw=5 bw=6");
    let zero = format!("node_id=${two} bw=0");
    write(folder.path(), "wrong", &[&broken, &zero]);
    let wrong = check("wrong", &[]);
    assert_eq!(wrong.status.code(), Some(0), "tor votes by it: {wrong:?}");
    let found = values(&wrong);
    let kind = |kind: &str| found.iter().filter(|it| it["type"] == kind).collect::<Vec<_>>();
    assert_eq!((kind("skipped")[0]["line"].clone(), kind("skipped").len()), (json!(6), 1));
    assert!(kind("advice").iter().any(|it| it["what"].as_str().expect("text").contains("bw=0")));
    assert_eq!(check("wrong", &["--strict"]).status.code(), Some(1));

    write(
        folder.path(),
        "sign",
        &[&format!("node_id=${one} bw=2147483648"), &format!("node_id=${two} bw=1")],
    );
    let sign = check("sign", &[]);
    assert_eq!(sign.status.code(), Some(1), "an authority makes no vote: {sign:?}");
    assert_eq!(values(&sign).pop().expect("a summary")["accepted"], false);

    for (name, text, word) in [
        ("empty", "", "it is empty"),
        ("date", "2026-01-01\n", "not a Unix time"),
        ("old", "1766900000\n", "72 h"),
    ] {
        fs::write(folder.path().join(name), text).expect("written");
        let refused = check(name, &[]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let summary = values(&refused).pop().expect("a summary");
        assert!(summary["verdict"].as_str().expect("text").contains(word), "{summary}");
    }
    let nowhere = check("nowhere", &[]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("cannot read nowhere"));
}

#[test]
fn files_are_shown_and_compared_as_they_are_voted_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let relays = ['1', '2', '3', '4'].map(relay);
    let line = |at: usize, rest: &str| format!("node_id=${} {rest}", relays[at]);
    let earlier = [line(0, "bw=5"), line(1, "bw=100 flashflow_mode=echo"), line(2, "bw=7")];
    let later = [line(0, "bw=5"), line(1, "bw=50"), line(2, "bw=7 vote=0"), line(3, "bw=9")];
    write(folder.path(), "earlier", &earlier.each_ref().map(String::as_str));
    write(folder.path(), "later", &later.each_ref().map(String::as_str));

    let shown = values(&bwfile(folder.path(), &["show", "later", "--json"]));
    let order: Vec<&Value> = shown[..3].iter().map(|it| &it["voted_kb_s"]).collect();
    assert_eq!(order, [&json!(50), &json!(9), &json!(5)]);
    assert_eq!((&shown[3]["without_vote"], &shown[3]["total_kb_s"]), (&json!(1), &json!(64)));
    let one = bwfile(folder.path(), &["show", "earlier", "--relay", &relays[1]]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(text.contains("100 KB/s") && text.contains("flashflow_mode=echo"), "{text}");
    let absent = bwfile(folder.path(), &["show", "earlier", "--relay", &relays[3]]);
    assert_eq!(absent.status.code(), Some(1));

    let compared = bwfile(folder.path(), &["diff", "earlier", "later", "--json"]);
    assert_eq!(compared.status.code(), Some(1), "they differ");
    let found = values(&compared);
    let summary = &found[found.len() - 1];
    let counts = ["added", "removed", "changed", "same"].map(|name| summary[name].as_u64());
    assert_eq!(counts, [1, 1, 1, 1].map(Some));
    assert_eq!((&found[0]["fingerprint"], &found[0]["ratio"]), (&json!(relays[1]), &json!(0.5)));
    let same = bwfile(folder.path(), &["diff", "later", "later"]);
    assert_eq!(same.status.code(), Some(0));
}
