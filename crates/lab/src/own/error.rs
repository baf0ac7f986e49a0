//! Errors of this project's processes.

use serde_json::Value;
use std::io;
use std::path::PathBuf;

/// Why a process of this project failed.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// A file that it needs could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It could not be started.
    #[error("cannot start our own process {name}: {source}")]
    Start {
        /// The name of the process.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Its output is not as expected.
    #[error("our own process {name} fails: {problem}")]
    Silent {
        /// The name of the process.
        name: String,
        /// Its output instead, or the lack of it.
        problem: String,
    },
}

impl OwnError {
    /// A process whose first output is not its listening address.
    #[must_use]
    pub fn not_listening(name: &str, said: &Value) -> Self {
        let problem = format!("it says something else than where it listens: {said}");
        Self::Silent { name: name.to_owned(), problem }
    }
}
