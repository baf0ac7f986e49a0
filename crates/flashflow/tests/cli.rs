//! The real program on private networks of stock tor, as people and scripts use it.
//!
//! Each run has a folder of its own for its temporary files: whatever it leaves is found there.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

#[path = "cli/consent.rs"]
mod consent;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/lab.rs"]
mod lab;
#[path = "cli/measure_team.rs"]
mod measure_team;

use common::Scratch;
use std::process::Stdio;

/// A relay's fingerprint.
const FP: &str = "8EE1049573B16673000000000000000000001267";

/// A relay that could start.
const RELAY: [&str; 7] =
    ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];

#[test]
fn a_wrong_command_line_is_refused_with_status_2_and_a_clear_message_before_anything_starts() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["demo", "--limits", "nonsense"], &["--limits", "nonsense"]),
        (&["demo", "--limits", "-5"], &["-5"]),
        (&["demo", "--limits=-5"], &["--limits", "-5"]),
        (&["demo", "--limits", ""], &["--limits"]),
        (&["demo", "--limits", "10,,50"], &["--limits"]),
        (&["demo", "--limits", "NaN"], &["--limits", "NaN"]),
        (&["demo", "--limits", "inf"], &["--limits", "inf"]),
        (&["demo", "--limits", "0.1"], &["0.6144 Mbit/s"]),
        (&["demo", "--echo-limits", "-5"], &["-5"]),
        (&["demo", "--echo-limits", "nonsense"], &["nonsense", "rate"]),
        (&["demo", "--relays", "0"], &["--relays", "0"]),
        (&["demo", "--relays", "1000"], &["--relays", "1000"]),
        (&["demo", "--seconds", "0"], &["--seconds", "0"]),
        (&["demo", "--check-share", "0"], &["--check-share", "0"]),
        (&["demo", "--check-share", "2"], &["--check-share", "2"]),
        (&["demo", "--check-share", "NaN"], &["--check-share", "NaN"]),
        (&["demo", "--guess", "0"], &["--guess", "0"]),
        (&["demo", "--guess", "inf"], &["--guess", "inf"]),
        (&["demo", "--capacity", "0"], &["--capacity", "0"]),
        (&["demo", "--measurers", "0"], &["--measurers", "0"]),
        (&["demo", "--sockets", "0"], &["--sockets", "0"]),
        (&["lab", "up", "--dir", "net", "--limits", "x"], &["--limits", "x"]),
        (&["lab", "up", "--dir", "net", "--relays", "0"], &["--relays", "0"]),
        (&["lab", "up"], &["--dir"]),
        (&["bench", "measurer", "--runs", "0"], &["--runs", "0"]),
        (&["measure"], &["RELAY"]),
        (&["measure", "relay1"], &["--authority", "--consensus", "--address"]),
        (&["measure", "relay1", "--authority", "nowhere"], &["--authority", "nowhere"]),
        (&["measure", "relay1", "--authority", "example.org:7001"], &["127.0.0.1:7001"]),
        (&["relay", "--authority", "example.org:7001"], &["127.0.0.1:7001"]),
        (&["measure", "relay1", "--address", "127.0.0.1:9"], &["fingerprint"]),
        (&["measure", FP, "--address", "127.0.0.1:9", "--guess", "0"], &["--guess", "0"]),
        (&["measure", FP, "--address", "127.0.0.1:9", "--check-share", "5"], &["--check-share 5"]),
        (&["measure", FP, "--address", "127.0.0.1:9", "--ed25519", "x"], &["--ed25519"]),
        (&["measure-team"], &["--local", "--team"]),
        (&["measure-team", "--local", "2", "--rate=-1"], &["--rate"]),
        (&["measure-team", "--local", "2", "--rate", "0"], &["--rate", "0"]),
        (&["relay"], &["--nickname"]),
        (&["relay", "--nickname", "mine"], &["--address"]),
        (&["relay", "--nickname", "mine", "--address", "127.0.0.1"], &["--keys"]),
        (&[&RELAY[..], &["--rate", "0.61"]].concat(), &["0.6144 Mbit/s"]),
        (&[&RELAY[..], &["--burst", "5"]].concat(), &["burst"]),
        (&["keys"], &["--out", "--show"]),
        (&["client", "--authority", "127.0.0.1:1", "--socks", "192.0.2.1:9"], &["--allow-others"]),
        (&["dashboard", "--store", "s", "--listen", "0.0.0.0:0"], &["--listen", "--allow-others"]),
        (&["export", "--store", "s", "--what", "records", "--format", "csv"], &["jsonl"]),
        #[cfg(not(feature = "parquet"))]
        (&["export", "--store", "s", "--format", "parquet"], &["parquet"]),
        (&["sim", "truth", "--scene", "none"], &["--scene", "none"]),
        (&["sim", "sample", "--consensus", "c", "--scale", "0", "--out", "o"], &["--scale"]),
        (&["sim", "batch", "--network", "n", "--out", "o", "--scale", "0"], &["--scale"]),
        (&["experiment", "balance", "--quick", "--out", "o"], &["--network"]),
        (&["experiment", "kist", "--quick", "--out", "o", "--rate", "0"], &["--rate", "0"]),
        (&["lab", "path", "--rtt-ms=-1"], &["milliseconds"]),
        (&["lab", "path", "--loss-percent", "101"], &["1.01"]),
        (&["bwfile", "check"], &["FILE"]),
        (&["frobnicate"], &["frobnicate"]),
        (&[], &["Usage"]),
    ];
    for (arguments, parts) in cases {
        let scratch = Scratch::new();
        let ended = scratch.run(arguments);
        assert_eq!(ended.out, Vec::<String>::new(), "{arguments:?}");
        ended.assert_refused(parts);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.error);
        scratch.assert_clean();
        assert!(!scratch.path("net").exists(), "{arguments:?}");
    }
}

#[test]
fn a_missing_tor_is_reported_with_the_way_to_install_it() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo", "--limits", "10", "--json"]);
    command.env("FLASHFLOW_TOR", "/nonexistent");
    let ended = common::Running::new(command).end();
    ended.assert_refused(&["/nonexistent", "apt-get install tor"]);
    // Programs hear of it, too.
    assert_eq!(ended.summary()["type"], "error");
    scratch.assert_clean();
}

#[test]
fn a_program_that_is_no_tor_is_named() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo", "--limits", "10"]);
    command.env("FLASHFLOW_TOR", "/bin/true");
    let ended = common::Running::new(command).end();
    ended.assert_refused(&["/bin/true", "really", "fingerprint"]);
    assert_eq!(ended.code, Some(1));
    scratch.assert_clean();
}

#[test]
fn the_help_of_every_command_has_an_example_of_it() {
    let scratch = Scratch::new();
    let commands: &[&[&str]] = &[
        &[],
        &["demo"],
        &["measure"],
        &["lab"],
        &["lab", "up"],
        &["lab", "status"],
        &["lab", "down"],
        &["bench"],
        &["bench", "measurer"],
        &["keys"],
        &["measurer"],
        &["coordinator"],
    ];
    for command in commands {
        let ended = scratch.run(&[command, &["--help"][..]].concat());
        ended.assert_code(0);
        let help = ended.out.join("\n");
        let example = format!("  flashflow {}", command.join(" "));
        assert!(
            help.contains("Example") && help.contains(example.trim_end()),
            "{command:?} {help}"
        );
    }
}

#[test]
fn help_that_nobody_reads_to_its_end_is_no_panic() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo", "--help"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(output.status.code(), Some(0), "{error}");
}
