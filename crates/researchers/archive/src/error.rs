//! Errors of archives and datasets.

use arrow_schema::ArrowError;
use datafusion::error::DataFusionError;
use std::io;
use std::path::PathBuf;

/// Why an archive or a dataset cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file or folder cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was attempted, as it follows "cannot".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The format of a source is unknown, or its content violates the format.
    #[error("{}: {problem}", path.display())]
    Source {
        /// The file or folder.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// A file of the dataset is damaged.
    #[error("{} is damaged ({problem}); remove the file, and import the sources of its month again with --again", path.display())]
    Dataset {
        /// The file.
        path: PathBuf,
        /// The error of the reader.
        problem: String,
    },
    /// A dataset in object storage cannot be read or written.
    #[error("{place}: {problem}")]
    Storage {
        /// The dataset, or one of its objects.
        place: String,
        /// The problem, whose it is, and the remedy.
        problem: String,
    },
    /// The dataset lacks what the command needs.
    #[error("{0}")]
    Missing(String),
    /// The query is invalid, or failed.
    #[error("{}", brief(.0))]
    Query(#[from] DataFusionError),
    /// A process of the cluster failed.
    #[error("{0}")]
    Cluster(String),
    /// A value cannot be printed.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// The error without the engine's internal context.
fn brief(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(reason) => {
            let reason = reason.lines().next_back().unwrap_or_default();
            format!(
                "the query needs more memory than --memory allows, and cannot spill; raise it ({reason})"
            )
        }
        _ => error.strip_backtrace(),
    }
}

impl ArchiveError {
    /// For `map_err` on I/O errors.
    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }

    /// For `map_err` on errors of the Parquet reader.
    pub(crate) fn damaged<E: ToString>(path: &std::path::Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| Self::Dataset { path, problem: error.to_string() }
    }
}
