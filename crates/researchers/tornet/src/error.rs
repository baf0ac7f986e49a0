use std::io;
use std::path::PathBuf;

/// Why a network cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The folder of a sample, which is not a part of this software, does not exist.
    #[error(
        "there is no sample {}; if it is one of tornettools' samples such as tornet-0.05-1, data.md in the documentation says where to \
         get it", path.display()
    )]
    NoSample {
        /// The folder.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; files written earlier are kept", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem and its position.
        problem: String,
    },
    /// The network cannot work as described.
    #[error("the network cannot work: {0}")]
    Impossible(String),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn malformed(path: impl Into<PathBuf>, problem: impl ToString) -> Self {
        Self::Malformed { path: path.into(), problem: problem.to_string() }
    }
}

/// Reads a text file.
pub(crate) fn read(path: impl Into<PathBuf>) -> Result<String, Error> {
    let path = path.into();
    std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
}
