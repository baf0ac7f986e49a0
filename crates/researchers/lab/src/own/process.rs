//! A process of this project and its output.

use super::error::OwnError;
use link::Clock;
use onion::{Duration, Instant};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::{io, thread};

/// The environment variable with the path of `flashflow`, if that is not in the folder of this program.
const PROGRAM_VARIABLE: &str = "FLASHFLOW_BIN";

/// A process of `flashflow`, or of this program, that prints JSON.
///
/// Dropping the value kills it. It also ends when this process is killed, which closes its standard input.
pub struct OwnProcess {
    name: String,
    child: Child,
    /// Dropping it ends the process.
    _input: Option<ChildStdin>,
    output: Receiver<(Instant, Value)>,
    clock: Clock,
}

impl OwnProcess {
    /// Starts `flashflow`, with another folder for temporary files if one is given; `clock` dates its output.
    /// `--json` and `--tied` are added to the arguments.
    ///
    /// The program is the one that the environment variable `FLASHFLOW_BIN` names, or the one in the folder of
    /// this program.
    ///
    /// # Errors
    /// [`OwnError::Start`] if the system refuses, for example because there is no such program.
    pub fn start<I: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = I>,
        temporary: Option<&Path>,
        clock: Clock,
    ) -> Result<Self, OwnError> {
        Self::spawn(name, flashflow(), arguments, temporary, clock)
    }

    /// Starts this program again with other arguments, like [`start`](Self::start).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_self<I: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = I>,
        clock: Clock,
    ) -> Result<Self, OwnError> {
        Self::spawn(name, env::current_exe(), arguments, None, clock)
    }

    fn spawn<I: AsRef<OsStr>>(
        name: &str,
        program: io::Result<PathBuf>,
        arguments: impl IntoIterator<Item = I>,
        temporary: Option<&Path>,
        clock: Clock,
    ) -> Result<Self, OwnError> {
        let failed = |source| OwnError::Start { name: name.to_owned(), source };
        let mut child = Command::new(program.map_err(failed)?)
            .args(arguments)
            .args(["--json", "--tied"])
            .envs(temporary.map(|folder| ("TMPDIR", folder)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Progress goes to standard error; results are JSON on standard output.
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (sender, output) = channel();
        let stdout = child.stdout.take();
        let input = child.stdin.take();
        thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
            for line in lines.map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else { continue };
                if sender.send((clock.now(), value)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name: name.to_owned(), child, _input: input, output, clock })
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next output and the time of arrival; `None` if there is none until `deadline`, or the process has ended.
    #[must_use]
    pub fn next_output(&self, deadline: Instant) -> Option<(Instant, Value)> {
        self.output.recv_timeout(deadline - self.clock.now()).ok()
    }

    /// Waits for a value of this type; earlier output is skipped.
    ///
    /// # Errors
    /// [`OwnError::Output`] if it prints an error, ends, or prints nothing of this type within `patience`.
    pub fn wait_for(&self, kind: &str, patience: Duration) -> Result<Value, OwnError> {
        self.wait_for_one(kind, |_| true, patience)
    }

    /// Waits for a value of this type that `accepts` accepts.
    ///
    /// # Errors
    /// As for [`wait_for`](Self::wait_for).
    pub fn wait_for_one(
        &self,
        kind: &str,
        accepts: impl Fn(&Value) -> bool,
        patience: Duration,
    ) -> Result<Value, OwnError> {
        let deadline = self.clock.now() + patience;
        let failed = |problem: String| OwnError::Output { name: self.name.clone(), problem };
        loop {
            match self.output.recv_timeout(deadline - self.clock.now()) {
                Ok((_, value)) if value["type"] == kind && accepts(&value) => return Ok(value),
                Ok((_, value)) if value["type"] == "error" => {
                    return Err(failed(value["error"].as_str().unwrap_or("no reason").to_owned()));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("it has ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(failed(format!("no {kind:?} in {patience:?}")));
                }
            }
        }
    }

    /// Its exit status, if it has ended.
    pub fn end(&mut self) -> Option<ExitStatus> {
        // An error means that it is not a child of this process, which is impossible.
        self.child.try_wait().ok().flatten()
    }

    /// Stops it like `kill -STOP`: its connections stay open, but it does not answer. It can only be killed.
    pub fn freeze(&self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::STOP);
    }

    /// Makes it reload its configuration.
    pub fn reload(&self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::HUP);
    }

    /// Kills it like `kill -9`.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program `flashflow`.
fn flashflow() -> io::Result<PathBuf> {
    if let Some(program) = env::var_os(PROGRAM_VARIABLE).filter(|program| !program.is_empty()) {
        return Ok(program.into());
    }
    let program = env::current_exe()?.with_file_name("flashflow");
    if program.is_file() {
        return Ok(program);
    }
    let problem = format!(
        "there is no program {}: build or copy it there, or name another in the environment variable {PROGRAM_VARIABLE}",
        program.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, problem))
}
