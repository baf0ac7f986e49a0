//! Errors of documents.

use std::io;
use std::path::PathBuf;

/// The reason why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read; `what` follows "cannot", such as "read the consensus".
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not the document that was expected, or is damaged.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The error in it.
        problem: String,
    },
    /// A consensus cannot be parsed.
    #[error("{what}: {source}")]
    Consensus {
        /// A description of the consensus.
        what: String,
        /// The first error in it.
        source: netdoc::consensus::ConsensusError,
    },
    /// An authority does not answer, or refuses.
    #[error(transparent)]
    Fetch(#[from] netdoc::fetch::FetchError),
    /// `-`, standard input, is the name of more than one file.
    #[error("`-` names standard input, which can be read for one argument only")]
    StdinTaken,
    /// A network that cannot be measured or planned.
    #[error("{0}")]
    Unusable(String),
}
