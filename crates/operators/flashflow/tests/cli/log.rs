//! The log of the daemons.

use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use testbin::team::{make_key, write_measurer};
use testbin::{Running, Scratch};

/// The log of a measurer that starts, fails to reload a list, and ends. `is_journal`: as if started by systemd.
fn log_of_a_measurer(arguments: &[&str], is_journal: bool) -> Vec<String> {
    let scratch = Scratch::new();
    let coordinator = make_key(&scratch, "c.key");
    make_key(&scratch, "m.key");
    write_measurer(&scratch, "m", "127.0.0.1:0", &coordinator);
    let mut command = scratch.command(&["measurer", "--config", "m.toml"]);
    command.args(arguments).env_remove("JOURNAL_STREAM").env_remove("RUST_LOG");
    let script = "exec \"$@\" 2>log";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(scratch.path("")).stdin(Stdio::null()).stdout(Stdio::piped());
    let path = scratch.path("log");
    let log = File::create(&path).expect("made").metadata().expect("there");
    if is_journal {
        shell.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino()));
    } else {
        // Inherited from a service that started this process.
        shell.env("JOURNAL_STREAM", "1:1");
    }
    let mut measurer = Running::new(shell);
    measurer.wait_for_out("its address", |line| line.starts_with("listening on "));
    fs::write(scratch.path("m.toml"), "nonsense").expect("written");
    measurer.signal(Signal::HUP);
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&path).expect("a log");
        text.lines().map(ToOwned::to_owned).collect()
    };
    testbin::wait_for("an error", || {
        lines().iter().any(|line| line.contains("not reloaded")).then_some(())
    });
    measurer.stop();
    lines()
}

#[test]
fn log_lines_have_a_time_and_a_level_or_a_priority_for_the_journal() {
    let lines = log_of_a_measurer(&[], false);
    for line in lines.iter().filter(|line| line.contains("measurer")) {
        let mut words = line.split_whitespace();
        let time = words.next().expect("a time");
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert_eq!(words.next(), Some("INFO"), "{line}");
    }
    assert!(lines.iter().any(|line| line.contains("ERROR configuration not reloaded")));

    let lines = log_of_a_measurer(&[], true);
    assert!(lines.iter().any(|line| line.starts_with("<6>measurer ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("<3>configuration not")), "{lines:#?}");
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    let lines = log_of_a_measurer(&["--log-format", "json"], false);
    let is_error = |line: &String| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(value["timestamp"].is_string() && value["message"].is_string(), "{line}");
        value["level"] == "ERROR"
    };
    assert_eq!(lines.iter().filter(|line| is_error(line)).count(), 1, "{lines:#?}");
}

#[test]
fn where_a_program_reads_stdout_the_address_stands_alone_and_in_one_stream_it_is_a_line_of_the_log()
{
    let scratch = Scratch::new();
    let coordinator = make_key(&scratch, "c.key");
    make_key(&scratch, "m.key");
    write_measurer(&scratch, "m", "127.0.0.1:0", &coordinator);
    let mut shell = Command::new("sh");
    let command = scratch.command(&["measurer", "--config", "m.toml"]);
    shell.args(["-c", "exec \"$@\" >log 2>&1", "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(scratch.path("")).stdin(Stdio::null());
    shell.env_remove("JOURNAL_STREAM").env_remove("RUST_LOG");
    let measurer = Running::new(shell);
    let line = testbin::wait_for("its address", || {
        let text = fs::read_to_string(scratch.path("log")).ok()?;
        text.lines()
            .find(|line| line.contains("listening on ") && line.ends_with(char::is_numeric))
            .map(ToOwned::to_owned)
    });
    assert!(line.contains("Z  INFO listening on 127.0.0.1:"), "{line}");
    measurer.stop();
}
