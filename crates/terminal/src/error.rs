//! Why what commands have in common cannot be done.

use std::io;

/// Why what several commands do cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no team, or it cannot measure.
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    /// The system does not let us handle signals.
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
