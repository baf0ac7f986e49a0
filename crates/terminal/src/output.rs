//! Where results and progress go.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where results and progress go: results to stdout, as text or one JSON value a line; progress and
/// errors to stderr.
pub struct Output {
    is_json: bool,
    bar: ProgressBar,
    /// Whether progress is printed line by line where there is no terminal to show it on.
    is_logged: AtomicBool,
    /// A result was lost: standard output did not take it.
    has_lost: AtomicBool,
}

/// Reports something that does not stop a command, on stderr.
pub fn note(message: impl Display) {
    // Nobody is left to hear of it if that fails.
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

    /// Reports the first error of standard output, and remembers it for [`has_lost`](Self::has_lost). A reader that has gone away, as `head`
    /// does, is none.
    pub fn keep_account(&self, written: io::Result<()>) {
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                if !self.has_lost.swap(true, Ordering::Relaxed) {
                    let problem = format!("flashflow: cannot write to standard output: {error}");
                    // If stderr is gone as well, the exit status is left.
                    let _ = writeln!(io::stderr().lock(), "{problem}");
                }
            }
            Err(_) | Ok(()) => {}
        }
    }

    /// Whether standard output did not take a result. Then no command has succeeded, whatever it did.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    /// A result that only programs want.
    pub fn record(&self, value: impl FnOnce() -> Value) {
        if self.is_json {
            self.result("", value);
        }
    }

    /// A result that only people want.
    pub fn text(&self, text: impl Display) {
        if !self.is_json {
            self.result(text, || Value::Null);
        }
    }

    /// From now on, progress is printed to stderr line by line if that is no terminal.
    pub fn log_progress(&self) {
        self.is_logged.store(true, Ordering::Relaxed);
    }

    /// What is being done now: replaces what was said last, where stderr is a terminal.
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

    /// A step that stays to be read, on stderr.
    pub fn step(&self, message: impl Display) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{message}");
        });
    }

    /// No more progress.
    pub fn quiet(&self) {
        self.bar.finish_and_clear();
    }

    /// What went wrong, on stderr; as a value, too, for programs.
    pub fn error(&self, error: impl Display) {
        self.quiet();
        let _ = writeln!(io::stderr().lock(), "flashflow: {error}");
        self.record(|| serde_json::json!({"type": "error", "error": error.to_string()}));
    }
}
