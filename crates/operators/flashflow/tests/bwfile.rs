//! Tests of `flashflow bwfile`.

use coordinator::{End, Failure, Mode, Params, PastEstimate, Record};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use store::{Entry, MeasurementFinished, MeasurementStarted, PublishedFile, Store};
use testbin::{Ended, Running, Scratch};

const HEADER: &str =
    "1767225600\nversion=1.9.0\nnumber_eligible_relays=2\nnumber_consensus_relays=3\n=====\n";
/// An hour after the file.
const AT: [&str; 2] = ["--at", "1767229200"];

fn relay(digit: char) -> String {
    std::iter::repeat_n(digit, 40).collect()
}

fn bwfile(scratch: &Scratch, arguments: &[&str]) -> Ended {
    scratch.run(&[&["bwfile"], arguments].concat())
}

/// A document of the crate `netdoc`.
fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/netdoc/tests/data").join(name)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn write(scratch: &Scratch, name: &str, lines: &[impl AsRef<str>]) {
    let text: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
    fs::write(scratch.path(name), format!("{HEADER}{text}")).expect("written");
}

#[test]
fn a_check_reports_problems_beyond_those_of_tor() {
    let scratch = Scratch::new();
    let (one, two) = (relay('1'), relay('2'));
    let lines = [
        format!("node_id=${one} bw=5 nick=one"),
        format!("node_id={two} bw=7 nick=two flashflow_mode=echo"),
    ];
    write(&scratch, "good", &lines);
    let check = |file: &str, more: &[&str]| {
        bwfile(&scratch, &[&["check", file, "--json"], &AT[..], more].concat())
    };
    let good = check("good", &["--strict"]);
    good.assert_code(0);
    let summary = &good.values()[0];
    assert_eq!((&summary["accepted"], &summary["relays"]), (&json!(true), &json!(2)));

    let broken = format!("node_id=${one} bw=5 bw=6");
    let zero = format!("node_id=${two} bw=0");
    write(&scratch, "wrong", &[&broken, &zero]);
    let wrong = check("wrong", &[]);
    // Authorities vote with it.
    wrong.assert_code(0);
    let found = wrong.values();
    let kind = |kind: &str| found.iter().filter(|value| value["type"] == kind).collect::<Vec<_>>();
    assert_eq!((kind("skipped")[0]["line"].clone(), kind("skipped").len()), (json!(6), 1));
    assert!(
        kind("advice").iter().any(|value| value["what"].as_str().expect("text").contains("bw=0"))
    );
    assert_eq!(check("wrong", &["--strict"]).code, Some(1));

    write(
        &scratch,
        "sign",
        &[&format!("node_id=${one} bw=2147483648"), &format!("node_id=${two} bw=1")],
    );
    let sign = check("sign", &[]);
    // An authority would not vote.
    sign.assert_code(1);
    assert_eq!(sign.values().pop().expect("a summary")["accepted"], false);

    for (name, text, word) in [
        ("empty", "", "it is empty"),
        ("date", "2026-01-01\n", "not a Unix time"),
        ("old", "1766900000\n", "72 h"),
    ] {
        fs::write(scratch.path(name), text).expect("written");
        let refused = check(name, &[]);
        refused.assert_code(1);
        let summary = refused.values().pop().expect("a summary");
        assert!(summary["verdict"].as_str().expect("text").contains(word), "{summary}");
    }
    let nowhere = check("nowhere", &[]);
    nowhere.assert_code(1);
    nowhere.assert_refused(&["cannot read nowhere"]);
}

#[test]
fn show_and_diff_are_about_votes() {
    let scratch = Scratch::new();
    let relays = ['1', '2', '3', '4'].map(relay);
    let line = |at: usize, rest: &str| format!("node_id=${} {rest}", relays[at]);
    let earlier = [line(0, "bw=5"), line(1, "bw=100 flashflow_mode=echo"), line(2, "bw=7")];
    let later = [line(0, "bw=5"), line(1, "bw=50"), line(2, "bw=7 vote=0"), line(3, "bw=9")];
    write(&scratch, "earlier", &earlier);
    write(&scratch, "later", &later);

    let shown = bwfile(&scratch, &["show", "later", "--json"]).values();
    let order: Vec<&Value> = shown[..3].iter().map(|value| &value["voted_kb_s"]).collect();
    assert_eq!(order, [&json!(50), &json!(9), &json!(5)]);
    assert_eq!((&shown[3]["without_vote"], &shown[3]["total_kb_s"]), (&json!(1), &json!(64)));
    let one = bwfile(&scratch, &["show", "earlier", "--relay", &relays[1]]);
    let text = one.out.join("\n");
    assert!(text.contains("100 KB/s") && text.contains("flashflow_mode=echo"), "{text}");
    let absent = bwfile(&scratch, &["show", "earlier", "--relay", &relays[3]]);
    absent.assert_code(1);

    let compared = bwfile(&scratch, &["diff", "earlier", "later", "--json"]);
    assert_eq!(compared.code, Some(1), "they differ");
    let found = compared.values();
    let summary = &found[found.len() - 1];
    let counts = ["added", "removed", "changed", "same"].map(|name| summary[name].as_u64());
    assert_eq!(counts, [1, 1, 1, 1].map(Some));
    assert_eq!((&found[0]["fingerprint"], &found[0]["ratio"]), (&json!(relays[1]), &json!(0.5)));
    let same = bwfile(&scratch, &["diff", "later", "later"]);
    same.assert_code(0);
}

#[test]
fn keys_of_the_header_are_read_by_check_show_and_diff() {
    let scratch = Scratch::new();
    let header = "scanner_country=AT\ndestinations_countries=AT,DE\nmu=1566357\nmuf=2437513\ndirauth_nickname=tor26\n\
        recent_consensus_count=118\ntime_to_report_half_network=1059699\ntor_version=0.4.9.11\n";
    let with = |header: &str| {
        let text = HEADER.replace("=====", &format!("{header}====="));
        text + &format!("node_id=${} bw=5\nnode_id=${} bw=7\n", relay('1'), relay('2'))
    };
    fs::write(scratch.path("good"), with(header)).expect("written");
    let other =
        header.replace("AT,DE", "at").replace("mu=1566357", "mu=many").replace("tor26", "moria1");
    fs::write(scratch.path("wrong"), with(&other)).expect("written");

    bwfile(&scratch, &[&["check", "good", "--strict"], &AT[..]].concat()).assert_code(0);
    let found = bwfile(&scratch, &[&["check", "wrong", "--json"], &AT[..]].concat()).values();
    let advice = found.iter().filter(|line| line["type"] == "advice");
    let advice: Vec<&str> = advice.filter_map(|line| line["what"].as_str()).collect();
    let [countries, mean] = advice[..] else { panic!("{advice:?}") };
    assert!(countries.contains("destinations_countries=at: expected pairs of capital letters"));
    assert!(mean.contains("mu=many: expected a number"), "{mean}");

    let shown = bwfile(&scratch, &["show", "good", "--header", "--json"]).values();
    let muf = shown.iter().find(|line| line["key"] == "muf").expect("a key");
    assert_eq!(muf["value"], "2437513");
    assert!(muf["meaning"].as_str().is_some_and(|meaning| meaning.contains("filtered")), "{muf}");
    let compared = bwfile(&scratch, &["diff", "good", "wrong", "--json"]);
    // The votes are the same.
    compared.assert_code(0);
    let lines = compared.values();
    let keys = lines.iter().filter(|line| line["type"] == "header").map(|line| &line["key"]);
    let expected = ["destinations_countries", "dirauth_nickname", "mu"].map(Value::from);
    assert_eq!(keys.cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn a_refused_file_has_tors_warning_a_reason_and_a_check_of_the_rest() {
    let scratch = Scratch::new();
    let good =
        format!("{HEADER}node_id=${} bw=5 nick=one\nnode_id=${} bw=x\n", relay('1'), relay('2'));
    let (time, _) = good.split_once('\n').expect("a time");
    for (name, bytes, warning, reason, is_checked) in [
        (
            "annotated",
            format!("@type bandwidth-file 1.0\n{good}").into_bytes(),
            r#"Non-integer time in bandwidth file: "@type bandwidth-file 1.0""#.to_owned(),
            "annotation",
            true,
        ),
        (
            "crlf",
            good.replace('\n', "\r\n").into_bytes(),
            format!(r#"Non-integer time in bandwidth file: "{time}\r""#),
            "carriage return",
            false,
        ),
        (
            "bom",
            format!("\u{feff}{good}").into_bytes(),
            format!(r#"Non-integer time in bandwidth file: "\357\273\277{time}""#),
            "byte-order mark",
            false,
        ),
        (
            "compressed",
            gzip(good.as_bytes()),
            r#"time in bandwidth file: "\037\213"#.to_owned(),
            "gzip",
            true,
        ),
        (
            "stale",
            good.replacen(time, "1766900000", 1).into_bytes(),
            "Bandwidth measurement file stale. Age: 329200".to_owned(),
            "72 h is the most",
            true,
        ),
        (
            "headless",
            good.split_once('\n').expect("lines").1.as_bytes().to_vec(),
            r#"Non-integer time in bandwidth file: "version=1.9.0""#.to_owned(),
            "the line with the time is missing",
            false,
        ),
        ("empty", Vec::new(), "Empty bandwidth file".to_owned(), "it is empty", false),
    ] {
        fs::write(scratch.path(name), bytes).expect("written");
        let refused = bwfile(&scratch, &["check", name, "--json", AT[0], AT[1]]);
        refused.assert_code(1);
        let found = refused.values();
        let tor_warning = found[0]["tor_warning"].as_str().expect("text");
        assert!(
            found[0]["type"] == "refused" && tor_warning.contains(&warning),
            "{name}: {tor_warning}"
        );
        let summary = &found[found.len() - 1];
        assert_eq!(
            (&summary["tor_warnings"], &summary["relays"]),
            (&json!(1), &json!(0)),
            "{name}"
        );
        assert!(summary["verdict"].as_str().expect("text").contains(reason), "{name}: {summary}");
        assert_eq!(summary["rest_checked"], is_checked, "{name}");
        // The line of the second relay has no number.
        let line = found.iter().find(|value| value["type"] == "skipped");
        assert_eq!(
            line.map(|line| line["line"].as_u64()),
            is_checked.then_some(Some(if name == "annotated" { 8 } else { 7 })),
            "{name}"
        );
        assert_eq!(summary["relays_if_accepted"], u64::from(is_checked), "{name}");
    }
}

#[test]
fn unreadable_descriptors_are_reported_and_the_newest_valid_ones_count() {
    let scratch = Scratch::new();
    let sample = fs::read_to_string(document("server-descriptors")).expect("a document");
    let first = sample.split("@type server-descriptor 1.0\n").nth(1).expect("three");
    let old = first.replacen("bandwidth 4594304", "bandwidth 1000", 1).replacen(
        "published 2020-02-29",
        "published 2020-02-28",
        1,
    );
    write(&scratch, "file", &["node_id=846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F bw=4000"]);
    let check = |name: &str, content: &[u8]| {
        fs::write(scratch.path(name), content).expect("written");
        bwfile(&scratch, &["check", "file", "--json", "--descriptors", name, AT[0], AT[1]])
    };
    for (name, content, word) in [
        ("picture", &b"\x89PNG\r\n\x1a\n\0"[..], "PNG"),
        ("page", b"<!DOCTYPE html>\n<html></html>\n", "HTML"),
        ("micro", &fs::read(document("microdescs")).expect("a document"), "microdescriptors"),
        ("nothing", b"", "empty"),
        ("cut", &first.as_bytes()[..700], "cut"),
        ("archive", b"\xfd7zXZ\0\0\x04", "xz"),
    ] {
        let refused = check(name, content);
        refused.assert_code(1);
        refused.assert_refused(&[word, name]);
    }
    for (name, content) in [
        ("newer-first", format!("{first}{old}").into_bytes()),
        ("newer-last", format!("{old}{first}").into_bytes()),
        ("compressed", gzip(format!("{first}{old}").as_bytes())),
    ] {
        let found = check(name, &content).values();
        let advice: Vec<_> =
            found.iter().filter(|value| value["what"].to_string().contains("operator")).collect();
        assert!(advice.is_empty(), "{name}: {advice:?}");
        let summary = found.last().expect("a summary");
        let counts = (&summary["descriptors"], &summary["descriptors_unreadable"]);
        assert_eq!(counts, (&json!(1), &json!(0)), "{name}");
    }
    let mixed = format!("{first}<html>\n{}", old.replacen("bandwidth 1000", "bandwidth none", 1));
    let found = check("mixed", mixed.as_bytes());
    assert_eq!(found.values().last().expect("a summary")["descriptors_unreadable"], 2);
    assert!(found.error.contains("2 descriptors cannot be read"), "{}", found.error);
}

#[test]
fn authorities_do_not_count_as_voted_and_a_vote_is_not_accepted_as_consensus() {
    let scratch = Scratch::new();
    let text = fs::read(document("consensus-ns")).expect("a document");
    let consensus = netdoc::Consensus::parse(&text).expect("a consensus");
    let lines: Vec<String> = consensus
        .routers()
        .iter()
        .map(|router| format!("node_id={} bw=5", router.fingerprint))
        .collect();
    write(&scratch, "file", &lines);
    fs::write(scratch.path("consensus.gz"), gzip(&text)).expect("written");
    let check = |consensus: &Path| {
        let consensus = consensus.to_str().expect("text");
        bwfile(&scratch, &["check", "file", "--json", "--consensus", consensus, AT[0], AT[1]])
    };
    for path in [document("consensus-ns"), scratch.path("consensus.gz")] {
        let checked = check(&path);
        let found = checked.values();
        let summary = found.last().expect("a summary");
        let authorities = consensus
            .routers()
            .iter()
            .filter(|router| router.flags.contains(netdoc::Flag::Authority))
            .count();
        assert_eq!((authorities, &summary["authorities"]), (1, &json!(1)));
        assert_eq!(summary["relays"], lines.len() - 1);
        assert!(found.iter().any(|value| value["type"] == "authority"), "{found:?}");
        // The consensus is of 2020, and the file of 2026.
        let noted = &checked.error;
        assert!(noted.contains("ended at 2020-02-29 13:00:00 UTC"), "{noted}");
    }
    let refused = check(&document("vote"));
    refused.assert_code(1);
    refused.assert_refused(&["this is a vote of one authority"]);
}

#[test]
fn standard_input_is_read_where_a_file_is_expected() {
    let scratch = Scratch::new();
    write(&scratch, "file", &[&format!("node_id={} bw=5 nick=one", relay('1'))]);
    let from_stdin = |arguments: &[&str]| {
        let mut command = scratch.command(&[&["bwfile"], arguments].concat());
        command.stdin(File::open(scratch.path("file")).expect("there"));
        Running::new(command).end()
    };
    for arguments in [&["check", "-", AT[0], AT[1]][..], &["show", "-"], &["diff", "-", "file"]] {
        from_stdin(arguments).assert_code(0);
    }
    let twice = from_stdin(&["diff", "-", "-"]);
    twice.assert_code(2);
    twice.assert_refused(&["standard input"]);
}

#[test]
fn times_may_be_dates_and_relays_nicknames() {
    let scratch = Scratch::new();
    let names = [('1', "one"), ('2', "two"), ('3', "two")];
    let lines = names.map(|(id, nick)| {
        format!("node_id=${} bw=5 nick={nick} time=2026-01-01T00:00:00", relay(id))
    });
    write(&scratch, "file", &lines);
    for (at, code) in [
        ("2026-01-01T01:00:00", 0),
        ("2026-01-02", 0),
        ("1767229200", 0),
        ("2026-02-01", 1),
        ("soon", 2),
    ] {
        let checked = bwfile(&scratch, &["check", "file", "--at", at]);
        assert_eq!(checked.code, Some(code), "{at}: {checked:?}");
    }
    let show = |more: &[&str]| bwfile(&scratch, &[&["show", "file"], more].concat());
    assert!(show(&[]).out.concat().contains("newest result 2026-01-01 00:00:00 UTC"));
    assert!(show(&["--relay", "one"]).out.concat().contains(&relay('1')));
    show(&["--relay", "two"]).assert_refused(&[&relay('2'), &relay('3')]);
    show(&["--relay", "nobody"]).assert_refused(&["nick=nobody"]);
}

#[test]
fn diff_distinguishes_errors_from_differences_by_status() {
    let scratch = Scratch::new();
    write(&scratch, "file", &[&format!("node_id={} bw=5", relay('1'))]);
    fs::write(scratch.path("page"), "<html>\n").expect("written");
    for (other, word) in [("nowhere", "No such file"), ("page", "HTML")] {
        for pair in [["file", other], [other, "file"]] {
            let ended = bwfile(&scratch, &["diff", pair[0], pair[1]]);
            ended.assert_code(2);
            ended.assert_refused(&[word]);
        }
    }
}

#[test]
fn estimates_of_several_places_are_explained_side_by_side() {
    const NOW: u64 = 1_767_225_600;
    let scratch = Scratch::new();
    let relay = relay('1');
    let ids = RelayIds { rsa: RsaId([0x11; 20]), ed25519: None };
    let estimate = PastEstimate {
        capacity: Rate::from_byte_per_s(50_000_000),
        measured_unix_s: NOW,
        mode: None,
        is_conclusive: Some(true),
        sockets: None,
    };
    let begun = MeasurementStarted {
        ids,
        nickname: "relay7".to_owned(),
        address: ([127, 0, 0, 1], 9001).into(),
        period_unix_s: NOW,
        number: 1,
        slot: None,
        started_unix_s: NOW,
    };
    let record = Record {
        relay: begun.subject(),
        ended_unix_s: NOW + 40,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end: End::Failed { reason: Failure::Cancelled, measurer: None, round: 1, second: None },
    };
    let published = PublishedFile {
        created_unix_s: NOW,
        path: "latest.v3bw".to_owned(),
        lines: 1,
        voted: 1,
        capacity_kb_s: 50_000,
        scanner_country: Some("AT".to_owned()),
    };
    let finished =
        MeasurementFinished { begun, record, follows: None, is_final: true, paths: Vec::new() };
    let mut store = Store::open(&scratch.path("store.db")).expect("new");
    let entries = [
        Entry::Imported(ids, "relay7".to_owned(), estimate),
        Entry::Finished(Box::new(finished)),
        Entry::Published(published),
    ];
    store.write(&entries).expect("space");
    drop(store);
    for (name, mbyte_s) in [("FR", 52), ("US", 13)] {
        let line = format!(
            "node_id=${relay} bw=1 time=2026-01-01T00:00:00 flashflow_conclusive=1 \
             flashflow_capacity_bytes_s={mbyte_s}000000"
        );
        let text = format!("{NOW}\nversion=1.9.0\nscanner_country={name}\n=====\n{line}\n");
        fs::write(scratch.path(name), text).expect("space");
    }
    let explain = |more: &[&str]| {
        bwfile(&scratch, &[&["explain", "relay7", "--store", "store.db"], more].concat())
    };
    let text = explain(&["--place", "FR", "--place", "US"]);
    text.assert_code(0);
    let row = |name: &str| {
        let found = text.out.iter().find(|line| line.starts_with(&format!("  {name} ")));
        found.unwrap_or_else(|| panic!("no {name} in {:#?}", text.out))
    };
    assert!(row("here (AT)").contains("400.00 Mbit/s  1.00 times"), "{:#?}", text.out);
    assert!(row("FR").contains("416.00 Mbit/s  1.04 times"), "{:#?}", text.out);
    assert!(row("US").contains("104.00 Mbit/s  0.26 times"), "{:#?}", text.out);
    assert!(row("US").ends_with("conclusive, far off"), "{:#?}", text.out);
    let spread =
        "The largest estimate of 3 places is 4.00 times the smallest. Far from their median: US.";
    assert!(text.out.last().is_some_and(|last| last.starts_with(spread)), "{:#?}", text.out);

    let found = explain(&["--place", "FR", "--place", "US", "--json"]).values();
    let places = found[0]["places"].as_array().expect("a list");
    let far: Vec<Value> = places
        .iter()
        .map(|place| json!([place["place"], place["file"], place["is_far_off"]]))
        .collect();
    let expected =
        [json!(["here (AT)", null, false]), json!(["FR", "FR", false]), json!(["US", "US", true])];
    assert_eq!(far, expected);
    assert_eq!(explain(&["--json"]).values()[0]["places"], json!([]));
    for (place, part) in [("absent", "file of another place absent"), ("store.db", "store.db")] {
        let refused = explain(&["--place", place]);
        refused.assert_code(1);
        refused.assert_refused(&[part]);
    }
    let exported = scratch.run(&["export", "--store", "store.db"]).values();
    assert_eq!(exported[0]["scanner_country"], "AT", "{exported:#?}");
}

#[test]
fn a_full_disk_on_standard_output_is_an_error_but_a_closed_pipe_is_not() {
    let scratch = Scratch::new();
    write(&scratch, "file", &[&format!("node_id={} bw=5", relay('1'))]);
    write(&scratch, "other", &[&format!("node_id={} bw=6", relay('1'))]);
    let consensus = document("consensus-ns");
    let consensus = consensus.to_str().expect("text");
    for arguments in [
        &["bwfile", "check", "file", AT[0], AT[1]][..],
        &["bwfile", "show", "file", "--json"],
        &["bwfile", "diff", "file", "other"],
        &["schedule", "--consensus", consensus, "--team", "1000"],
        &["schedule", "--consensus", consensus, "--team", "1000", "--json"],
        &["manual", "--out", "manual"],
        &["completions", "bash"],
        &["--help"],
        &["bwfile", "--help"],
        &["--version"],
    ] {
        let run = |stdout: Stdio| {
            let mut command = scratch.command(arguments);
            command.stdout(stdout);
            Running::new(command).end()
        };
        let full = run(File::options().write(true).open("/dev/full").expect("a device").into());
        assert_eq!(full.code, Some(1), "{arguments:?}: {full:?}");
        let problem = "cannot write to standard output: No space left on device";
        assert_eq!(full.error.matches(problem).count(), 1, "{arguments:?}: {full:?}");
        // The other end of the pipe is closed before the command begins.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let gone = run(writer.into());
        assert!(matches!(gone.code, Some(0 | 1 | 3)), "{arguments:?}: {gone:?}");
        assert!(!gone.error.contains("standard output"), "{arguments:?}: {gone:?}");
        gone.assert_no_panic();
    }
}

/// `script` gives the command a terminal, on which a display of progress would be drawn between lines.
#[test]
fn lines_on_a_terminal_are_not_interrupted() {
    let scratch = Scratch::new();
    let lines = ['A', 'B'].map(|digit| format!("node_id=${} bw=7", relay(digit)));
    write(&scratch, "a.v3bw", &lines);
    let command = format!("{} bwfile show a.v3bw", testbin::program("flashflow").display());
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(scratch.path(""))
        .output();
    let Ok(output) = script else { skip::this_test!("the program `script`") };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains(&relay('B')), "{output:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}
