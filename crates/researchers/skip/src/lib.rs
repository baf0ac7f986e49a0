//! Skipping tests that cannot run on this machine.
//!
//! `cargo test` knows only passed and failed tests. A test without its data or permissions is neither; if it
//! returned early, it would count as passed. Instead it calls
//!
//! ```no_run
//! # fn consensus() -> std::io::Result<Vec<u8>> { std::fs::read("consensus") }
//! let bytes = match consensus() {
//!     Ok(bytes) => bytes,
//!     Err(error) => skip::this_test!("there is no consensus: {error}"),
//! };
//! ```
//!
//! This ends the test and prints a line to standard error, which `cargo test` does not capture, and which
//! `scripts/test` subtracts from the passed tests, counts, and repeats at the end. Only the lack of something
//! that a machine need not have is a reason to skip; everything else is a failure.

use std::fmt::{Arguments, Write as _};
use std::io::{Write as _, stderr};
use std::panic::Location;
use std::thread;

/// The prefix of the lines that `scripts/test` counts.
pub const MARK: &str = "test skipped: ";

/// Ends the calling test as skipped, with a reason that is formatted as by [`format!`].
#[macro_export]
macro_rules! this_test {
    ($($reason:tt)+) => {{
        $crate::report(::core::format_args!($($reason)+));
        return;
    }};
}

/// Marks the test on this thread as skipped; [`this_test`] also ends it.
#[track_caller]
pub fn report(reason: Arguments<'_>) {
    let line = line(thread::current().name(), Location::caller(), reason);
    // In one write, since other threads write, too; and without the macros, whose output `cargo test` captures.
    // If even that fails, the test still counts as passed.
    let _nobody_to_tell = stderr().write_all(line.as_bytes());
}

fn line(test: Option<&str>, location: &Location<'_>, reason: Arguments<'_>) -> String {
    let mut line = format!("{MARK}{} ({location}): ", test.unwrap_or("a test"));
    let start = line.len();
    let _cannot_fail = write!(line, "{reason}");
    let reason = line.split_off(start).replace(['\n', '\r'], " ");
    line + &reason + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_that_names_test_place_and_reason() {
        let here = Location::caller();
        let line = line(Some("some::test"), here, format_args!("no data\nat all"));
        assert_eq!(line, format!("test skipped: some::test ({here}): no data at all\n"));
    }
}
