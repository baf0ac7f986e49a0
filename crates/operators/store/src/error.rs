use rusqlite::ErrorCode;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The file format's version for readers, in the header of a database: 2 if there is a write-ahead log
/// (<https://www.sqlite.org/fileformat.html>, section 1.3.3).
const READ_VERSION_AT: usize = 19;
const READ_VERSION_LOG: u8 = 2;

/// Whether the journal of a database is a write-ahead log.
fn has_log(mut file: File) -> io::Result<bool> {
    let mut header = [0; READ_VERSION_AT + 1];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| header[READ_VERSION_AT] == READ_VERSION_LOG),
    }
}

/// The index of the write-ahead log.
fn index_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-shm");
    name.into()
}

/// The reason why an operation of the store failed. Earlier writes are never affected.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process writes it.
    #[error("another program writes {}; stop it, or give each coordinator a store of its own", path.display())]
    Locked {
        /// The store.
        path: PathBuf,
    },
    /// The store does not exist, and must not be created.
    #[error("there is no store at {}; a coordinator creates it next to its bandwidth files", path.display())]
    Missing {
        /// The store.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error("{} is not a store of a coordinator; choose another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of this program wrote it.
    #[error(
        "{} has the layout {found}, and this version of flashflow knows {known} at most; use the later version again, or a \
         backup that is older", path.display()
    )]
    TooNew {
        /// The store.
        path: PathBuf,
        /// Its schema version.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// Its pages are inconsistent. A disk or memory error, or a copy made during a write, can cause this.
    #[error(
        "{} is damaged: {problem}; move it away with its -wal and -shm files and put the last backup there, or nothing: then \
         the remaining bandwidth files have the expected capacities of relays", path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// The inconsistency.
        problem: String,
    },
    /// The disk is full. The write may be repeated.
    #[error("no space left on the disk for {}; free some, and nothing is lost", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// Its journal is a write-ahead log, whose index is missing and cannot be made.
    #[error(
        "{} was copied while it was in use, or its writer was killed: it cannot be read without the index {}-shm, and none \
         can be made in its folder, which is read-only for this user; copy it, with its -wal file if there is one, to a \
         folder that you can write, or copy the original with: flashflow store backup", path.display(), path.display()
    )]
    Unindexed {
        /// The store.
        path: PathBuf,
    },
    /// The target of a backup exists.
    #[error("{} exists, and is not overwritten; name a new file", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another error of SQLite.
    #[error("the store {}: {source}", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
}

impl StoreError {
    pub(crate) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        // SQLite does not say why.
        if source.sqlite_error_code() == Some(ErrorCode::CannotOpen)
            && let Err(source) = File::open(&path)
        {
            return Self::File { action: "open", path, source };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::NotADatabase) => Self::Foreign { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, problem: source.to_string() },
            // SQLite does not give the reason.
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                match File::open(&path).and_then(has_log) {
                    Err(source) => Self::File { action: "open", path, source },
                    Ok(true) if !index_of(&path).exists() => Self::Unindexed { path },
                    Ok(_) => Self::Database { path, source },
                }
            }
            _ => Self::Database { path, source },
        }
    }

    /// Whether the error may disappear later, with the same store and the same entries.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::File { .. } | Self::Database { .. })
    }
}
