//! Errors of commands.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why a command failed. Errors of libraries are converted by `?` to [`Other`](Self::Other).
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong in a way that clap cannot detect, such as a number whose range depends on another option.
    Usage(String),
    /// A file cannot be used.
    File {
        /// The failed operation, which follows "cannot" in the message, such as "write the model".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file has the wrong content.
    Config {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The operating system has no random bytes.
    Random(String),
    /// Any other reason, in words.
    Failed(String),
    /// An error of a library.
    Other(Box<dyn StdError + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(problem) | Self::Failed(problem) => f.write_str(problem),
            Self::File { what, path, source } => {
                write!(f, "cannot {what} {}: {source}", path.display())
            }
            Self::Config { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Random(problem) => {
                write!(f, "the operating system gives no random bytes: {problem}")
            }
            Self::Other(error) => error.fmt(f),
        }
    }
}

// `Error` does not implement the trait `std::error::Error`, so that this does not overlap with `From<T> for T`.
impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Other(Box::new(error))
    }
}
