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

#[test]
fn nonsense_is_refused_with_a_clear_message_before_a_network_starts() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["demo", "--limits", "nonsense"], &["--limits", "nonsense"]),
        (&["demo", "--limits", "-5"], &["-5"]),
        (&["demo", "--limits=-5"], &["--limits", "-5"]),
        (&["demo", "--limits", ""], &["--limits"]),
        (&["demo", "--limits", "10,,50"], &["--limits"]),
        (&["demo", "--limits", "NaN"], &["--limits", "NaN"]),
        (&["demo", "--limits", "inf"], &["--limits", "inf"]),
        (&["demo", "--limits", "0.1"], &["0.61 Mbit/s"]),
        (&["demo", "--echo-limits", "-5"], &["-5"]),
        (&["demo", "--echo-limits", "nonsense"], &["nonsense", "rate"]),
        (&["demo", "--relays", "0"], &["--relays", "0"]),
        (&["demo", "--relays", "1000"], &["--relays", "1000"]),
        (&["demo", "--seconds", "0"], &["--seconds", "0"]),
        (&["demo", "--check-share", "0"], &["check", "0"]),
        (&["demo", "--check-share", "2"], &["check", "2"]),
        (&["demo", "--check-share", "NaN"], &["check", "NaN"]),
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
        (&["measure", "relay1", "--address", "127.0.0.1:9"], &["fingerprint"]),
        (&["frobnicate"], &["frobnicate"]),
        (&[], &["Usage"]),
    ];
    for (arguments, parts) in cases {
        let scratch = Scratch::new();
        let ended = scratch.run(arguments);
        assert_eq!(ended.out, Vec::<String>::new(), "{arguments:?}");
        ended.assert_refused(parts);
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
