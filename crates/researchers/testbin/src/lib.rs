//! Runs the built programs in tests, with a deadline for everything, and finds what they leave behind.
//!
//! The programs are found in the folder of the build: `cargo test -p flashflow-lab` builds `flashflow-lab` alone, so build the
//! other one first: `cargo build -p flashflow`.

pub mod chromium;
pub mod fake_clock;
pub mod help;
pub mod manual;
pub mod monitoring;
pub mod schema;
pub mod team;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;

/// Timeout of all waits, far above any wait on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Timeout of a program, far above the duration of any.
const LONGEST: Duration = Duration::from_secs(900);

/// The time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "deadlines of the tests")]
pub fn now() -> Instant {
    Instant::now()
}

/// Asserts that the estimate of a relay is conclusive, except that its clients are unknown, and between `least` and 1.1 times `right`. If the machine pauses for half a second
/// in a round of a few seconds, the estimate may be inconclusive because of it; then `least_unsteady` is the minimum.
pub fn assert_estimate(relay: &Value, right: f64, least: f64, least_unsteady: f64) {
    let reason = relay["inconclusive_reason"].as_str().unwrap_or_default();
    let is_machines = reason.contains("unsteady") || reason.contains("processor");
    let is_conclusive = relay["conclusive"] == true || reason.starts_with("its clients");
    assert!(is_conclusive || is_machines, "{relay}");
    let share = number(relay, "estimate_mbit_per_s") / right;
    let least = if is_conclusive { least } else { least_unsteady };
    assert!((least..=1.1).contains(&share), "{share:.3} of {right}: {relay}");
}

/// Waits until `look` finds something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    // Nothing is ever sent: this is a sleep.
    let (_sender, receiver) = channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "timeout: {what}");
        let _timeout = receiver.recv_timeout(Duration::from_millis(20));
    }
}

/// What prevents tests with network namespaces on this machine: a missing program or privilege.
#[must_use]
pub fn lacking() -> Option<String> {
    for program in ["ip", "tc"] {
        if let Err(error) = Command::new(program).arg("-V").output() {
            return Some(format!("the program `{program}`: {error}"));
        }
    }
    let error = link::Namespace::new().err()?;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    Some(format!("network namespaces: {error}"))
}

/// The commands of `flashflow-lab`.
const LAB_COMMANDS: [&str; 13] = [
    "demo",
    "conformance",
    "lab",
    "bench",
    "experiment",
    "sim",
    "client",
    "probe",
    "model",
    "anonymity",
    "archive",
    "papers",
    "results",
];

/// The program of this name (`flashflow` or `flashflow-lab`), as built with this test.
///
/// # Panics
/// If it has not been built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = env::current_exe().expect("this test");
    // The test is in target/debug/deps, the programs in target/debug.
    let program = test.parent().and_then(Path::parent).expect("two folders").join(name);
    assert!(program.is_file(), "no {}: run `cargo build -p {name}`", program.display());
    program
}

/// The folder of a test, in which programs run. Drop kills the processes that are left.
pub struct Scratch {
    parent: TempDir,
    temporary: PathBuf,
}

impl Scratch {
    /// A new, empty folder.
    #[must_use]
    pub fn new() -> Self {
        let parent = tempfile::Builder::new().prefix("flashflow-cli-").tempdir().expect("a folder");
        let temporary = parent.path().canonicalize().expect("exists").join("temporary");
        fs::create_dir(&temporary).expect("made");
        Self { parent, temporary }
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    /// The folders of private networks in it.
    #[must_use]
    pub fn networks(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.temporary).expect("a folder");
        entries.map(|entry| entry.expect("listed").path()).collect()
    }

    /// Processes with this folder in their arguments: tor, tor-gencert and keepers.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, String)> {
        let mark = self.parent.path().to_str().expect("text").to_owned();
        let entries = fs::read_dir("/proc").expect("a folder");
        let found = entries.filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&mark).then_some((pid, line))
        });
        found.collect()
    }

    /// The number of processes of tor among them.
    #[must_use]
    pub fn tors(&self) -> usize {
        self.processes().iter().filter(|(_, line)| line.contains("--defaults-torrc")).count()
    }

    /// Asserts that no process and no temporary file is left.
    pub fn assert_clean(&self) {
        assert_eq!(self.processes(), []);
        assert_eq!(self.networks(), Vec::<PathBuf>::new());
    }

    /// Waits until no process and no temporary file is left.
    pub fn wait_until_clean(&self) {
        let is_clean = || self.processes().is_empty() && self.networks().is_empty();
        wait_for("the end of all processes and folders", || is_clean().then_some(()));
    }

    /// The program that has the command in `arguments`, with them, in this folder.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let name =
            arguments.first().and_then(|argument| argument.as_ref().to_str()).unwrap_or_default();
        let is_lab = LAB_COMMANDS.contains(&name);
        let mut command = Command::new(program(if is_lab { "flashflow-lab" } else { "flashflow" }));
        command.args(arguments);
        self.at_home(command)
    }

    /// `flashflow` with these arguments and at most this number of file descriptors.
    pub fn command_with_descriptors<S: AsRef<OsStr>>(
        &self,
        descriptors: u32,
        arguments: &[S],
    ) -> Command {
        let mut command = Command::new("sh");
        let limit = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &limit]).arg(program("flashflow")).args(arguments);
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        command
            .current_dir(self.parent.path())
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts the program that has the command in `arguments`.
    pub fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Running {
        Running::new(self.command(arguments))
    }

    /// Runs a command until it exits.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ended {
        self.start(arguments).end()
    }

    /// Runs a command with these arguments, separated by blanks. Asserts that it does not panic and leaves nothing behind.
    pub fn run_experiment(&self, arguments: &str) -> Ended {
        let ended = self.run(&arguments.split_whitespace().collect::<Vec<_>>());
        ended.assert_no_panic();
        self.assert_clean();
        ended
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            signal(pid, Signal::KILL);
        }
        if !thread::panicking() {
            wait_for("the last processes' end", || self.processes().is_empty().then_some(()));
        }
    }
}

/// Sends a signal to a process that may have ended.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

enum Line {
    Out(String),
    Error(String),
}

/// A running program. Drop kills it.
pub struct Running {
    child: Child,
    /// The schema of its lines, if it prints JSON and has one.
    schema: Option<Value>,
    lines: Receiver<Line>,
    started: Instant,
    out: Vec<String>,
    error: Vec<String>,
}

impl Running {
    /// Starts a program whose output is read.
    pub fn new(mut command: Command) -> Self {
        let started = now();
        let words: Vec<&str> = command.get_args().filter_map(OsStr::to_str).collect();
        let program = Path::new(command.get_program());
        let is_ours =
            program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flashflow"));
        let schema = (is_ours && (words.contains(&"--json") || words.first() == Some(&"export")))
            .then(|| schema::of_command(program, &words))
            .flatten();
        let mut child = command.spawn().expect("the program");
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            read(out, Line::Out, sender.clone());
        }
        if let Some(error) = child.stderr.take() {
            read(error, Line::Error, sender);
        }
        Self { child, schema, lines, started, out: Vec::new(), error: Vec::new() }
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// The lines of stdout so far.
    pub fn out(&self) -> &[String] {
        &self.out
    }

    /// Reads a line; false at the end of the output.
    fn next_line(&mut self) -> bool {
        // A period may take longer on a busy machine, so the timeout is for silence.
        let left = LONGEST.saturating_sub(self.started.elapsed()).min(PATIENCE);
        match self.lines.recv_timeout(left) {
            Ok(Line::Out(line)) => {
                self.validate(&line);
                self.out.push(line);
            }
            Ok(Line::Error(line)) => self.error.push(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return false,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let ran = self.started.elapsed();
                panic!(
                    "no output for {left:?} after {ran:?}; before: {:#?} {:#?}",
                    self.out, self.error
                )
            }
        }
        true
    }

    /// Asserts that a line follows the schema of its command. The last line of a killed process may be incomplete.
    fn validate(&self, line: &str) {
        if let (Some(schema), Ok(value)) = (&self.schema, serde_json::from_str(line))
            && let Err(problem) = schema::validate(schema, &value)
        {
            panic!("{line} does not follow the schema of its command: {problem}");
        }
    }

    /// Waits for a line of stdout for which `holds` is true.
    pub fn wait_for_out(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        while !self.out.iter().any(|line| holds(line)) {
            assert!(self.next_line(), "ended without {what}: {:#?} {:#?}", self.out, self.error);
        }
    }

    /// Waits for `count` lines of stdout for which `holds` is true.
    pub fn wait_for_outs(&mut self, what: &str, count: usize, holds: impl Fn(&str) -> bool) {
        while self.out.iter().filter(|line| holds(line)).count() < count {
            assert!(self.next_line(), "ended without {what}: {:#?} {:#?}", self.out, self.error);
        }
    }

    /// Waits for the first line of stdout, which must be JSON.
    pub fn wait_for_value(&mut self) -> Value {
        self.wait_for_out("a value", |_| true);
        serde_json::from_str(&self.out[0]).unwrap_or_else(|error| panic!("{error}: {:?}", self.out))
    }

    /// Waits for a line of stderr for which `holds` is true.
    pub fn wait_for_error(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        while !self.error.iter().any(|line| holds(line)) {
            assert!(self.next_line(), "ended without {what}: {:#?} {:#?}", self.out, self.error);
        }
    }

    /// Waits for a JSON object of this type on stdout for which `holds` is true, and returns the first.
    pub fn wait_for_record(&mut self, kind: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut read = 0;
        loop {
            let lines = self.out[read..].iter().filter_map(|line| serde_json::from_str(line).ok());
            let mut values = lines.filter(|value: &Value| value["type"] == kind);
            if let Some(found) = values.find(&holds) {
                return found;
            }
            read = self.out.len();
            assert!(self.next_line(), "ended without {kind}: {:#?} {:#?}", self.out, self.error);
        }
    }

    /// Sends SIGTERM, and asserts that it then exits with status 0.
    pub fn stop(self) {
        self.signal(Signal::TERM);
        self.end().assert_code(0);
    }

    /// Waits until it exits.
    pub fn end(mut self) -> Ended {
        while self.next_line() {}
        let child = &mut self.child;
        let status = wait_for("the program's end", || child.try_wait().expect("a child"));
        Ended {
            code: status.code(),
            took: self.started.elapsed(),
            out: std::mem::take(&mut self.out),
            error: std::mem::take(&mut self.error).join("\n"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

fn read(from: impl Read + Send + 'static, kind: fn(String) -> Line, sender: Sender<Line>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(kind(line)).is_err() {
                return;
            }
        }
    });
}

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// How long it ran.
    pub took: Duration,
    /// Lines of its standard output.
    pub out: Vec<String>,
    /// Its standard error.
    pub error: String,
}

impl Ended {
    /// Asserts this exit status, and that it did not panic.
    pub fn assert_code(&self, code: i32) {
        let Self { out, error, .. } = self;
        assert_eq!(self.code, Some(code), "{out:#?}\n{error}");
        self.assert_no_panic();
    }

    /// Asserts the exit status of conclusive (0) or inconclusive (3) estimates. [`assert_estimate`] checks the estimates.
    pub fn assert_measured(&self) {
        let Self { code, out, error, .. } = self;
        assert!(matches!(code, Some(0 | 3)), "{code:?}: {out:#?}\n{error}");
        self.assert_no_panic();
    }

    /// Asserts that it did not panic.
    pub fn assert_no_panic(&self) {
        assert!(!self.error.contains("panicked"), "{}", self.error);
    }

    /// Asserts that it failed with a message that contains all of `parts`.
    pub fn assert_refused(&self, parts: &[&str]) {
        let Self { out, error, .. } = self;
        assert!(matches!(self.code, Some(1 | 2)), "{:?}: {out:#?}\n{error}", self.code);
        self.assert_no_panic();
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    }

    /// Each line of stdout, which must be JSON.
    pub fn values(&self) -> Vec<Value> {
        let parse = |line: &String| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        self.out.iter().map(parse).collect()
    }

    /// The last of them.
    pub fn summary(&self) -> Value {
        let values = self.values();
        values.last().unwrap_or_else(|| panic!("no output; {}", self.error)).clone()
    }
}

/// Returns the response to an HTTP request for this path, including its head.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A number in a JSON object.
pub fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {value}"))
}

/// A text in a JSON object.
pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// Whether a line of stdout is the result of a second of a measurement.
pub fn is_second(line: &str) -> bool {
    line.contains("\"type\":\"second\"")
}
