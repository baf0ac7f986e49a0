//! Output of results and progress.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Output: results to stdout, as text or one JSON value a line; progress and errors to stderr.
pub struct Output {
    is_json: bool,
    bar: ProgressBar,
    /// Whether progress is printed line by line if stderr is no terminal.
    is_logged: AtomicBool,
    /// A result was lost: writing to standard output failed.
    has_lost: AtomicBool,
}

/// Reports a warning on stderr.
pub fn note(message: impl Display) {
    // An error on stderr cannot be reported.
    let _ = writeln!(io::stderr().lock(), "flashflow: note: {message}");
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
        let (is_logged, has_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is_json, bar, is_logged, has_lost }
    }

    /// A result: `text` for people, `value` for programs.
    pub fn result(&self, text: impl Display, value: impl FnOnce() -> Value) {
        self.bar.suspend(|| {
            let mut stdout = io::stdout().lock();
            let written = if self.is_json {
                writeln!(stdout, "{}", value())
            } else {
                writeln!(stdout, "{text}")
            };
            self.keep_account(written.and_then(|()| stdout.flush()));
        });
    }

    /// Reports the first error of standard output, and remembers it for [`has_lost`](Self::has_lost). A closed pipe, as
    /// by `head`, does not count.
    /// does, is none.
    pub fn keep_account(&self, written: io::Result<()>) {
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                if !self.has_lost.swap(true, Ordering::Relaxed) {
                    let problem = format!("flashflow: cannot write to standard output: {error}");
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

    /// A result for programs only.
    pub fn record(&self, value: impl FnOnce() -> Value) {
        if self.is_json {
            self.result("", value);
        }
    }

    /// A result for people only.
    pub fn text(&self, text: impl Display) {
        if !self.is_json {
            self.result(text, || Value::Null);
        }
    }

    /// Enables printing of progress to stderr line by line if that is no terminal.
    pub fn log_progress(&self) {
        self.is_logged.store(true, Ordering::Relaxed);
    }

    /// Shows the current activity, in place of the previous one, if stderr is a terminal.
    pub fn doing(&self, message: impl Into<String>) {
        let message = message.into();
        if self.bar.is_hidden() {
            if self.is_logged.load(Ordering::Relaxed) {
                self.step(message);
            }
            return;
        }
        self.bar.enable_steady_tick(Duration::from_millis(120));
        self.bar.set_message(message);
    }

    /// Prints a step permanently, on stderr.
    pub fn step(&self, message: impl Display) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{message}");
        });
    }

    /// Ends the progress display.
    pub fn quiet(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints an error on stderr; as a value, too, for programs.
    pub fn error(&self, error: impl Display) {
        self.quiet();
        let _ = writeln!(io::stderr().lock(), "flashflow: {error}");
        self.record(|| serde_json::json!({"type": "error", "error": error.to_string()}));
    }
}
