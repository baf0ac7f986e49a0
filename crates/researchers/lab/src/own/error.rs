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
    #[error("cannot start the process {name}: {source}")]
    Start {
        /// The name of the process.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Its output is not as expected.
    #[error("the process {name} failed: {problem}")]
    Output {
        /// The name of the process.
        name: String,
        /// The output, or the lack of it.
        problem: String,
    },
}

impl OwnError {
    /// The first output of a process is not its listening address.
    #[must_use]
    pub fn no_address(name: &str, output: &Value) -> Self {
        let problem = format!("its first output is not its address: {output}");
        Self::Output { name: name.to_owned(), problem }
    }
}
