//! What can go wrong with processes of our own.

use serde_json::Value;
use std::io;
use std::path::PathBuf;

/// Why a process of our own cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// A file that it needs could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It does not start.
    #[error("cannot start our own process {name}: {source}")]
    Start {
        /// What the process is called.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It does not say what it should.
    #[error("our own process {name} fails: {problem}")]
    Silent {
        /// What the process is called.
        name: String,
        /// What it says instead, or that it says nothing.
        problem: String,
    },
}

impl OwnError {
    /// Of a process whose first word is not where it listens.
    #[must_use]
    pub fn not_listening(name: &str, said: &Value) -> Self {
        let problem = format!("it says something else than where it listens: {said}");
        Self::Silent { name: name.to_owned(), problem }
    }
}
