use std::io;
use std::path::PathBuf;

/// Why a network cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; what was written before is there", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// What is described cannot work.
    #[error("the network cannot work: {0}")]
    Impossible(String),
    /// Somebody has asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn malformed(path: impl Into<PathBuf>, problem: impl ToString) -> Self {
        Self::Malformed { path: path.into(), problem: problem.to_string() }
    }
}

/// Reads a file of text.
pub(crate) fn read(path: impl Into<PathBuf>) -> Result<String, Error> {
    let path = path.into();
    std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
}
