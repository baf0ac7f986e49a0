//! Where results and progress go.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::error::Error as StdError;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where results and progress go: results to stdout, as text or one JSON value a line; progress and
/// errors to stderr.
pub struct Output {
    is_json: bool,
    bar: ProgressBar,
    /// Whether progress is printed line by line where there is no terminal to show it on.
    is_logged: AtomicBool,
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
        Self { is_json, bar, is_logged: AtomicBool::new(false) }
    }

    /// A result: `text` for people, `value` for programs.
    pub fn result(&self, text: impl Display, value: impl FnOnce() -> Value) {
        self.bar.suspend(|| {
            let mut stdout = io::stdout().lock();
            // A reader that went away, as `head` does, is no error of ours.
            let _ = if self.is_json {
                writeln!(stdout, "{}", value())
            } else {
                writeln!(stdout, "{text}")
            };
            let _ = stdout.flush();
        });
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
    pub fn error(&self, error: &(dyn StdError + 'static)) {
        self.quiet();
        let _ = writeln!(io::stderr().lock(), "flashflow: {error}");
        self.record(|| serde_json::json!({"type": "error", "error": error.to_string()}));
    }
}
