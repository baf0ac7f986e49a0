//! Commands that other commands run and record.

use cli::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use terminal::Interrupt;

/// Interval at which the end of a command is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Runs a command of this project to its end, and returns its status and standard output. An interrupt is passed on to it once, so that
/// it stops what it has started; the caller then returns. If this process is killed, the command stops as well.
///
/// # Errors
/// The command cannot be run, or its output cannot be kept.
pub(crate) fn run(
    command: &mut Command,
    interrupt: &Interrupt,
) -> Result<(ExitStatus, String), Error> {
    let mut output = tempfile::tempfile()?;
    let file = |output: &File| output.try_clone().map(Stdio::from);
    // In a group of its own: otherwise a terminal's signal would reach it as well, and a second one ends it at once.
    let child = command
        .arg("--tied")
        .stdin(Stdio::piped())
        .stdout(file(&output)?)
        .stderr(Stdio::inherit())
        .process_group(0);
    interrupt.wind_up_in_order();
    let spawned = child.spawn();
    let path = PathBuf::from(command.get_program());
    let mut child = spawned.map_err(|source| Error::File { what: "run", path, source })?;
    // Held, since the command ends with its input: waiting would close it.
    let _input = child.stdin.take();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if interrupt.wait(LOOK) => {
                pass_on(&child);
                break child.wait()?;
            }
            None => {}
        }
    };
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

fn pass_on(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ended = pid.map(|pid| kill_process(pid, Signal::INT));
}
