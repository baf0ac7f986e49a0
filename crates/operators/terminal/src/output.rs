//! Output of results and progress.

use crate::exit::Exit;
use indicatif::{ProgressBar, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Prints results to stdout, as text or JSON lines, and progress and errors to stderr.
pub struct Output {
    is_json: bool,
    /// The program's version, with its commit.
    version: &'static str,
    bar: Progress,
    /// Whether progress is printed line by line if stderr is not a terminal.
    is_logged: AtomicBool,
    /// Whether a daemon writes a log.
    is_log: AtomicBool,
    /// A result was lost: writing to standard output failed.
    has_lost: AtomicBool,
}

/// The last line of a command that did not complete.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum End {
    /// It was interrupted.
    Interrupted,
    /// It could not start or continue. A coordinator without `--once` continues.
    Error {
        /// The reason.
        error: String,
    },
}

/// The fields of `value` as a line of results: a JSON object with the given `type`.
#[must_use]
pub fn tagged(kind: &str, value: &impl Serialize) -> Value {
    let mut line = json!({"type": kind});
    if let (Value::Object(line), Ok(Value::Object(rest))) = (&mut line, serde_json::to_value(value))
    {
        line.extend(rest);
    }
    line
}

/// Standard error for a log whose lines do not break the progress display.
#[derive(Clone)]
pub struct ErrorStream(Progress);

/// The display of the current activity.
#[derive(Clone)]
struct Progress {
    bar: ProgressBar,
    /// Whether there is an activity.
    is_shown: Arc<AtomicBool>,
}

impl Progress {
    /// Prints without the current activity in between. A bar without one is not touched: it would be drawn again for each line.
    fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        if self.is_shown.load(Ordering::Relaxed) { self.bar.suspend(print) } else { print() }
    }
}

impl Write for ErrorStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Whether stderr is the journal's: systemd names device and inode of its stream in `JOURNAL_STREAM`. Then lines may begin with
/// a priority (sd-daemon(3)).
#[must_use]
pub fn is_journal() -> bool {
    let is_stream = |named: String| {
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
        let stream = stderr.metadata().ok()?;
        Some(named == format!("{}:{}", stream.dev(), stream.ino()))
    };
    env::var("JOURNAL_STREAM").ok().and_then(is_stream).unwrap_or(false)
}

/// Whether stdout and stderr are one stream, such as a terminal or the journal.
fn is_one_stream() -> bool {
    let of = |stream: io::Result<std::os::fd::OwnedFd>| {
        let metadata = File::from(stream.ok()?).metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let out = of(io::stdout().as_fd().try_clone_to_owned());
    out.is_some() && out == of(io::stderr().as_fd().try_clone_to_owned())
}

/// The name by which this program was started.
fn program() -> String {
    let path = env::args_os().next().map(PathBuf::from);
    let name = path.as_deref().and_then(Path::file_name);
    name.map_or_else(|| "flashflow".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Reports a warning on stderr.
pub fn note(message: impl Display) {
    // An error on stderr cannot be reported.
    let priority = if is_journal() { "<4>" } else { "" };
    let _ = writeln!(io::stderr().lock(), "{priority}{}: note: {message}", program());
}

impl Output {
    /// To standard output as JSON, or as text.
    #[must_use]
    pub fn new(is_json: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        // The template is a constant: an error would be a bug, and a plain bar does as well.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        let bar = Progress { bar, is_shown: Arc::default() };
        let [is_logged, is_log, has_lost] = [false; 3].map(AtomicBool::new);
        Self { is_json, version: env!("CARGO_PKG_VERSION"), bar, is_logged, is_log, has_lost }
    }

    /// Sets the program's version, which results contain.
    #[must_use]
    pub const fn of_version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// The program's version, with its commit if [`of_version`](Self::of_version) gave it.
    #[must_use]
    pub const fn version(&self) -> &'static str {
        self.version
    }

    /// Prints a result: `value` with `--json`, else `text`.
    pub fn result<V: Serialize>(&self, text: impl Display, value: impl FnOnce() -> V) {
        self.bar.suspend(|| {
            let mut stdout = io::stdout().lock();
            let written = if self.is_json {
                // Cannot fail: all keys are strings.
                let line = serde_json::to_string(&value()).map_err(io::Error::from);
                line.and_then(|line| writeln!(stdout, "{line}"))
            } else {
                writeln!(stdout, "{text}")
            };
            self.keep_account(written.and_then(|()| stdout.flush()));
        });
    }

    /// Prints a daemon's result: `log` writes it if it would be a line among those of the log, which have a time and a level.
    pub fn announce<V: Serialize>(
        &self,
        text: impl Display,
        value: impl FnOnce() -> V,
        log: impl FnOnce(&dyn Display),
    ) {
        if self.is_log() && !self.is_json && is_one_stream() {
            log(&text);
        } else {
            self.result(text, value);
        }
    }

    /// Reports the first error of standard output, and remembers it for [`has_lost`](Self::has_lost). A closed pipe, as
    /// by `head`, does not count.
    pub fn keep_account(&self, written: io::Result<()>) {
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                if !self.has_lost.swap(true, Ordering::Relaxed) {
                    let problem =
                        format!("{}: cannot write to standard output: {error}", program());
                    // If stderr is closed as well, the exit status is left.
                    let _ = writeln!(io::stderr().lock(), "{problem}");
                }
            }
            Err(_) | Ok(()) => {}
        }
    }

    /// Whether writing a result to standard output failed. Then the command has failed.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    /// Prints a result with `--json` only.
    pub fn record<V: Serialize>(&self, value: impl FnOnce() -> V) {
        if self.is_json {
            self.result("", value);
        }
    }

    /// Prints a result without `--json` only.
    pub fn text(&self, text: impl Display) {
        if !self.is_json {
            self.result(text, || ());
        }
    }

    /// Enables printing of progress to stderr line by line if that is not a terminal.
    pub fn log_progress(&self) {
        self.is_logged.store(true, Ordering::Relaxed);
    }

    /// Shows the current activity, in place of the previous one, if stderr is a terminal.
    pub fn doing(&self, message: impl Into<String>) {
        let message = message.into();
        if self.bar.bar.is_hidden() {
            if self.is_logged.load(Ordering::Relaxed) {
                self.step(message);
            }
            return;
        }
        self.bar.is_shown.store(true, Ordering::Relaxed);
        self.bar.bar.enable_steady_tick(Duration::from_millis(120));
        self.bar.bar.set_message(message);
    }

    /// Shows a part of the current activity; after [`log_progress`](Self::log_progress) as a separate line, even on a terminal.
    pub fn progress(&self, message: impl Into<String>) {
        if self.is_logged.load(Ordering::Relaxed) {
            self.step(message.into());
        } else {
            self.doing(message);
        }
    }

    /// Prints a step permanently, on stderr.
    pub fn step(&self, message: impl Display) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{message}");
        });
    }

    /// Whether this is the output of a daemon, which has taken [`error_stream`](Self::error_stream).
    #[must_use]
    pub fn is_log(&self) -> bool {
        self.is_log.load(Ordering::Relaxed)
    }

    /// Standard error for a daemon's log.
    #[must_use]
    pub fn error_stream(&self) -> ErrorStream {
        self.is_log.store(true, Ordering::Relaxed);
        ErrorStream(self.bar.clone())
    }

    /// Ends the progress display.
    pub fn quiet(&self) {
        self.bar.is_shown.store(false, Ordering::Relaxed);
        self.bar.bar.finish_and_clear();
    }

    /// Reports the interrupt, also as a JSON value. Returns the exit status.
    pub fn interrupted(&self) -> Exit {
        self.quiet();
        self.step("interrupted");
        self.record(|| End::Interrupted);
        Exit::Interrupted
    }

    /// Prints an error on stderr and, with `--json`, as a value on stdout.
    pub fn error(&self, error: impl Display) {
        self.quiet();
        let priority = if is_journal() { "<3>" } else { "" };
        let _ = writeln!(io::stderr().lock(), "{priority}{}: {error}", program());
        self.record(|| End::Error { error: error.to_string() });
    }
}
