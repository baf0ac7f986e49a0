//! The command line of `flashflow`.
//!
//! Each run has a separate folder for temporary files, so that leftovers are found.

mod check;
mod consent;
mod log;
mod measure_team;
mod metrics;

use std::process::Stdio;
use testbin::Scratch;

/// A relay's fingerprint.
const FP: &str = "8EE1049573B16673000000000000000000001267";

/// A relay that could start.
const RELAY: [&str; 7] =
    ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];

#[test]
fn a_wrong_command_line_is_refused_with_status_2_and_a_clear_message_before_anything_starts() {
    let cases: &[(&[&str], &[&str])] = &[
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
        (&["dashboard", "--store", "s", "--listen", "0.0.0.0:0"], &["--listen", "--allow-others"]),
        (&["export", "--store", "s", "--what", "records", "--format", "csv"], &["jsonl"]),
        (&["export", "--store", "s", "--format", "parquet"], &["jsonl", "csv"]),
        (&["bwfile", "check"], &["FILE"]),
        (&["frobnicate"], &["frobnicate"]),
        // The most similar command comes first, and a negative number is a value.
        (&["mesure"], &["exist: 'measure', ", "'store'"]),
        (
            &["measure", FP, "--address", "127.0.0.1:9", "--seconds", "-5"],
            &["'-5' for '--seconds", "3..=600"],
        ),
        (
            &["measure", FP, "--address", "127.0.0.1:9", "--guess", "-5"],
            &["--guess -5", "above zero"],
        ),
        (&[], &["Usage"]),
    ];
    for (arguments, parts) in cases {
        let scratch = Scratch::new();
        let ended = scratch.run(arguments);
        assert_eq!(ended.out, Vec::<String>::new(), "{arguments:?}");
        ended.assert_refused(parts);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.error);
        scratch.assert_clean();
    }
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let scratch = Scratch::new();
    let commands: &[&[&str]] = &[
        &[],
        &["measure"],
        &["measure-team"],
        &["relay"],
        &["schedule"],
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
fn help_into_a_closed_pipe_does_not_panic() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["relay", "--help"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(output.status.code(), Some(0), "{error}");
}
