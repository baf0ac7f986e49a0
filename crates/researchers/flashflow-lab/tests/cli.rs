//! The command line of `flashflow-lab`: what is refused, help, manual. `demo` and `networks` have what starts a network.

use std::process::Command;
use testbin::{Running, Scratch};

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
        (
            &["lab", "up", "--dir", "net", "--address", "192.0.2.1"],
            &["neither on loopback nor private"],
        ),
        (&["lab", "up"], &["--dir"]),
        (&["bench", "measurer", "--runs", "0"], &["--runs", "0"]),
        (&["client", "--authority", "127.0.0.1:1", "--socks", "192.0.2.1:9"], &["--allow-others"]),
        (&["sim", "truth", "--scene", "none"], &["--scene", "none"]),
        (&["sim", "sample", "--consensus", "c", "--scale", "0", "--out", "o"], &["--scale"]),
        (&["sim", "batch", "--network", "n", "--out", "o", "--scale", "0"], &["--scale"]),
        (&["experiment", "balance", "--quick", "--out", "o"], &["--network"]),
        (&["experiment", "kist", "--quick", "--out", "o", "--rate", "0"], &["--rate", "0"]),
        (&["lab", "path", "--rtt-ms=-1"], &["milliseconds"]),
        (&["lab", "path", "--loss-percent", "101"], &["1.01"]),
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
fn the_analysis_of_archives_is_said_to_be_another_program() {
    let ended = Scratch::new().run(&["archive", "errors", "tor.dataset", "--out", "errors"]);
    ended.assert_refused(&["flashflow-archive errors tor.dataset --out errors"]);
    assert_eq!(ended.code, Some(2));
}

#[test]
fn a_missing_tor_is_reported_with_instructions_to_install_it() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo", "--limits", "10", "--json"]);
    command.env("FLASHFLOW_TOR", "/nonexistent");
    let ended = Running::new(command).end();
    ended.assert_refused(&["/nonexistent", "apt-get install tor"]);
    // It is in the JSON output, too.
    assert_eq!(ended.summary()["type"], "error");
    scratch.assert_clean();
}

#[test]
fn a_program_that_is_not_tor_is_named() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["demo", "--limits", "10"]);
    command.env("FLASHFLOW_TOR", "/bin/true");
    let ended = Running::new(command).end();
    ended.assert_refused(&["/bin/true", "another program", "fingerprint"]);
    assert_eq!(ended.code, Some(1));
    scratch.assert_clean();
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let scratch = Scratch::new();
    let commands: &[&[&str]] = &[
        &["demo"],
        &["lab"],
        &["lab", "up"],
        &["lab", "status"],
        &["lab", "down"],
        &["bench"],
        &["bench", "measurer"],
    ];
    for command in commands {
        let ended = scratch.run(&[command, &["--help"][..]].concat());
        ended.assert_code(0);
        let help = ended.out.join("\n");
        let example = format!("  flashflow-lab {}", command.join(" "));
        assert!(help.contains("Example") && help.contains(&example), "{command:?} {help}");
    }
}

#[test]
fn the_program_has_a_manual_and_completions() {
    let program = || Command::new(env!("CARGO_BIN_EXE_flashflow-lab"));
    let help = program().arg("--help").output().expect("it starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("  flashflow-lab demo ") && help.contains("FLASHFLOW_BIN"), "{help}");
    let scratch = Scratch::new();
    let written = program().arg("manual").arg("--out").arg(scratch.path("manual")).output();
    assert!(written.expect("it starts").status.success());
    for file in [
        "man1/flashflow-lab.1",
        "man1/flashflow-lab-experiment.1",
        "completions/flashflow-lab.bash",
        "completions/_flashflow-lab",
        "completions/flashflow-lab.fish",
    ] {
        assert!(scratch.path("manual").join(file).is_file(), "{file}");
    }
}
