use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// Why the store cannot do what it was asked for. What was written before is untouched by all of them.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process writes it.
    #[error("another program writes {}; stop it, or give each coordinator a store of its own", path.display())]
    Locked {
        /// The store.
        path: PathBuf,
    },
    /// There is none, and none is to be made.
    #[error("there is no store at {}; a coordinator makes it, beside its bandwidth files", path.display())]
    Missing {
        /// The store.
        path: PathBuf,
    },
    /// It is a file of something else.
    #[error("{} is no store of a coordinator; name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of this program has written it.
    #[error(
        "{} has the layout {found}, and this version of flashflow knows {known} at most; use the later version again, or a \
         backup that is older", path.display()
    )]
    TooNew {
        /// The store.
        path: PathBuf,
        /// Its layout.
        found: i64,
        /// The newest that we know.
        known: i64,
    },
    /// Its pages contradict each other. A disk or its memory did that, or somebody copied it while it was written.
    #[error(
        "{} is damaged: {problem}; move it away with its -wal and -shm files and put the last backup there, or nothing: then \
         the bandwidth files that are left tell what is expected of relays", path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What does not fit.
        problem: String,
    },
    /// There is no room. What was to be written may be written again.
    #[error("no room on the disk for {}; make some, and nothing is lost", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// The target of a backup is there already.
    #[error("{} exists, and is not overwritten; name a new file", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// SQLite refused something else.
    #[error("the store {}: {source}", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
}

impl StoreError {
    pub(crate) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::NotADatabase) => Self::Foreign { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, problem: source.to_string() },
            _ => Self::Database { path, source },
        }
    }

    /// Whether it may well be right by itself later, with the same store and the same entries.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::File { .. } | Self::Database { .. })
    }
}
