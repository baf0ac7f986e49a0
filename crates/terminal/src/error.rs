//! Why what commands have in common cannot be done.

use std::io;

/// Why what several commands do cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The private network fails.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// There is no team, or it cannot measure.
    #[error(transparent)]
    Team(#[from] measurer::TeamError),
    /// The system does not let us handle signals.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The arguments describe nothing that can be done.
    #[error("{0}")]
    Usage(String),
}
