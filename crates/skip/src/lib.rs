//! How a test says that it cannot run here.
//!
//! `cargo test` knows tests that pass and tests that fail. One that finds no data, or lacks the right to
//! make what it needs, does neither; if it just returned, it would count as passed. So it says
//!
//! ```no_run
//! # fn consensus() -> std::io::Result<Vec<u8>> { std::fs::read("consensus") }
//! let bytes = match consensus() {
//!     Ok(bytes) => bytes,
//!     Err(error) => skip::this_test!("there is no consensus: {error}"),
//! };
//! ```
//!
//! That ends the test with a line on standard error which `cargo test` lets through, and which
//! `scripts/test` takes from the passed ones, counts, and repeats in the end. Only the lack of what a
//! machine need not have is a reason; all else is a failure.

use std::fmt::{Arguments, Write as _};
use std::io::{Write as _, stderr};
use std::panic::Location;
use std::thread;

/// What the lines begin with that `scripts/test` counts.
pub const MARK: &str = "test skipped: ";

/// Ends the test that says this as skipped, with its reason, which is formatted as by [`format!`].
#[macro_export]
macro_rules! this_test {
    ($($reason:tt)+) => {{
        $crate::report(::core::format_args!($($reason)+));
        return;
    }};
}

/// Says that the test which runs in this thread is skipped; [`this_test`] ends it as well.
#[track_caller]
pub fn report(reason: Arguments<'_>) {
    let line = line(thread::current().name(), Location::caller(), reason);
    // At once, since other threads write, too; and past the macros, whose output `cargo test` keeps from
    // those who look at tests that pass. Where even that fails, the test still counts as passed.
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
