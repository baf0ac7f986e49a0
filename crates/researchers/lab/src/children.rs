//! Child tor processes.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::clock::Deadline;
use crate::error::LabError;
use crate::process::{self, DEFAULTS, log_tail};
use crate::torrc::{CONTROL_PORT, COOKIE};

/// How long tor may take to exit. Usually it exits at once, but a relay (0.4.9.11) that started recently often logs
/// a clean exit and then hangs for at least half a minute, for unknown reasons.
pub(crate) const ORDERLY: Duration = Duration::from_secs(1);
/// How long a killed process may take to disappear.
pub(crate) const KILLED: Duration = Duration::from_secs(10);

/// Tor processes; dropping the value ends them.
#[derive(Debug, Default)]
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// Starts the tor of the node whose `torrc` is in `dir`.
    pub(crate) fn start(&mut self, tor: &Path, dir: &Path) -> Result<u32, LabError> {
        let network = dir.parent().unwrap_or(dir);
        let path = dir.join("output");
        let output = File::create(&path).map_err(LabError::io("create", &path))?;
        let errors = output.try_clone().map_err(LabError::io("open", &path))?;
        let child = Command::new(tor)
            .arg("--defaults-torrc")
            .arg(network.join(DEFAULTS))
            .arg("-f")
            .arg(dir.join("torrc"))
            .current_dir(dir)
            .env("HOME", dir)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C at the terminal must not reach tor: this process ends the network.
            .process_group(0)
            .spawn()
            .map_err(LabError::io("start the program", tor))?;
        let pid = child.id();
        self.0.push(child);
        Ok(pid)
    }

    /// Lets the processes continue to run.
    pub(crate) fn release(mut self) {
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &self.0 {
            process::signal(child.id(), Signal::TERM);
        }
        let deadline = Deadline::after(ORDERLY);
        for child in &mut self.0 {
            if process::wait_for_end(child, deadline.left()).is_none() {
                let _ended_meanwhile = child.kill();
                // Processes that survive even this are left to the keeper.
                let _ended = process::wait_for_end(child, KILLED);
            }
        }
    }
}

/// The error for a tor that has exited unexpectedly.
pub(crate) fn died(nickname: &str, pid: u32, dir: &Path) -> LabError {
    let log = log_tail(dir);
    let nickname = nickname.to_owned();
    if log.contains("Address already in use") {
        return LabError::PortInUse { nickname, attempts: 1, log };
    }
    LabError::TorDied { nickname, status: exit_status(pid), log }
}

/// The exit status of a child, without reaping it.
fn exit_status(pid: u32) -> String {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let status = pid.and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
    match status.map(|status| (status.exit_status(), status.terminating_signal())) {
        Some((Some(code), _)) => format!("exit status {code}"),
        Some((_, Some(signal))) => format!("killed by signal {signal}"),
        _ => "status unknown".to_owned(),
    }
}

/// Waits until a node's tor listens at its control port, and returns its address.
pub(crate) fn wait_for_control(
    nickname: &str,
    pid: u32,
    dir: &Path,
    deadline: Deadline,
) -> Result<SocketAddr, LabError> {
    loop {
        // Tor writes both files atomically, by renaming, in either order.
        if dir.join(COOKIE).is_file()
            && let Ok(text) = std::fs::read_to_string(dir.join(CONTROL_PORT))
        {
            return text
                .trim()
                .strip_prefix("PORT=")
                .and_then(|address| address.parse().ok())
                .ok_or_else(|| LabError::BadFile {
                    path: PathBuf::from(dir).join(CONTROL_PORT),
                    expected: "a line `PORT=address`",
                });
        }
        if deadline.passed() {
            return Err(LabError::Timeout {
                what: format!("the control port of `{nickname}`"),
                after: deadline.elapsed(),
                log: log_tail(dir),
            });
        }
        // There is no notification for the files, but the exit of the process ends this wait at once. (Its
        // arguments are not checked: between fork and exec the child does not have them yet.)
        if process::wait_for_exit(pid, deadline.step(Duration::from_millis(20))) {
            return Err(died(nickname, pid, dir));
        }
    }
}
