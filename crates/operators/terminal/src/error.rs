//! Errors of the common parts of commands.

use std::io;

/// An error of a common part of commands.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no team, or it cannot measure.
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    /// The system does not permit signal handlers.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Whether the command line is at fault, so that the exit status is 2.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}
