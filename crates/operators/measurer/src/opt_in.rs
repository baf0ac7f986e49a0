//! The opt-in list: a file with the relays whose operators agree to be measured.

use coordinator::{BadOptInLine, Consent};
use std::path::{Path, PathBuf};

/// An opt-in list that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptInError {
    /// It cannot be read.
    #[error("cannot read the opt-in list {}: {source}", path.display())]
    Unreadable {
        /// The list.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A line is not a fingerprint.
    #[error(
        "line {} of the opt-in list {} is not a fingerprint of 40 hex digits, alone or followed by a blank and an address, without \
         `$` and commas",
        source.line, path.display()
    )]
    BadLine {
        /// The list.
        path: PathBuf,
        /// The line.
        source: BadOptInLine,
    },
}

/// `consent`, with the relays of the opt-in list at `path` added.
///
/// # Errors
/// The list cannot be read, or a line has no fingerprint.
pub fn read_opt_in(consent: Consent, path: &Path) -> Result<Consent, OptInError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| OptInError::Unreadable { path: path.to_owned(), source })?;
    consent.with_list(&text).map_err(|source| OptInError::BadLine { path: path.to_owned(), source })
}
