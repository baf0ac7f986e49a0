//! The good and bad cases of the measurement protocol (`docs/protocol.md`), put before any relay.
//!
//! They judge our relay and C tor with `patches/tor-0.4.9` alike. The relay must list the coordinator's key, allow it 40 to 90
//! measurements, and permit measurements of ten seconds or more. The cases carry hardly any traffic.

mod bench;
mod cases;

use bench::Bench;
pub use cases::{BREACHES, Case, all_cases};
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

/// Plays cases against a relay, which conforms if each has the expected result.
pub struct Judge(Bench);

impl Judge {
    /// Cases against this relay.
    ///
    /// # Errors
    /// [`ConformanceError`].
    pub fn new(subject: Subject) -> Result<Self, ConformanceError> {
        let issuer = IdentityIssuer::new([1; 32], subject.unix_time_s)
            .map_err(|error| ConformanceError::Own(error.to_string()))?;
        Ok(Self(Bench::new(subject, &issuer)?))
    }

    /// Plays a case and returns its result, whatever the relay does.
    ///
    /// # Errors
    /// [`ConformanceError`] if this machine cannot play it.
    pub fn play(&mut self, case: &Case) -> Result<String, ConformanceError> {
        self.0.play(case.play)
    }
}
