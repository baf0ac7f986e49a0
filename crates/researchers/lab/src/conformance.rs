//! The good and bad cases of the measurement protocol (`docs/protocol.md`), put before any relay.
//!
//! They judge our relay and C tor with `patches/tor-0.4.9` alike. The relay must list the coordinator's key, allow it more
//! measurements than there are cases, and permit measurements of ten seconds or more. The cases carry hardly any traffic.

mod bench;
mod cases;
mod peer;

use bench::Bench;
use link::{DriverError, IdentityIssuer};
use onion::measure::load::Target;

/// A relay to judge.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its address and identities.
    pub target: Target,
    /// The secret key of a coordinator that the relay lists.
    pub coordinator: [u8; 32],
    /// The time for certificates and orders, in Unix seconds.
    pub unix_time_s: u64,
}

/// A case, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What the peers do.
    pub name: &'static str,
    /// What comes of it with any implementation: the codes of the errors that the coordinator and then a measurer receive, `-`
    /// for none; or else a word.
    pub expected: &'static str,
    /// What came of it here.
    pub found: String,
}

impl Row {
    /// Whether the relay conforms.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.found == self.expected
    }
}

/// The cases could not be played.
#[derive(Debug, thiserror::Error)]
pub enum ConformanceError {
    /// Our own sockets or certificates failed.
    #[error("this machine: {0}")]
    Own(String),
}

impl From<DriverError> for ConformanceError {
    fn from(error: DriverError) -> Self {
        Self::Own(error.to_string())
    }
}

/// The number of cases.
#[must_use]
pub const fn cases() -> usize {
    cases::CASES.len()
}

/// Plays all cases, one after the other, and passes each to `on_row`, until that returns false.
///
/// # Errors
/// [`ConformanceError`] if this machine cannot play them. Whatever the relay does is a row.
pub fn judge(
    subject: Subject,
    on_row: &mut dyn FnMut(&Row) -> bool,
) -> Result<(), ConformanceError> {
    let issuer = IdentityIssuer::new([1; 32], subject.unix_time_s)
        .map_err(|error| ConformanceError::Own(error.to_string()))?;
    let mut bench = Bench::new(subject, &issuer)?;
    for case in cases::CASES {
        let found = bench.play(case.play)?;
        if !on_row(&Row { name: case.name, expected: case.expected, found }) {
            break;
        }
    }
    Ok(())
}
