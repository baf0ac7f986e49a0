//! Opens the file, for the writer and for readers.

use crate::error::StoreError;
use crate::schema::{self, APPLICATION};
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::ops::Deref;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout for a locked file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The set-group-ID bit of a folder: the kernel gives new files in it the folder's group.
const SET_GROUP_ID: u32 = 0o2000;

/// The writer.
pub struct Store {
    pub(crate) reader: Reader,
    /// Held as long as this exists; the system releases it when the process ends.
    _lock: File,
}

/// A reader. There may be many, also concurrently with the writer; each query sees one state of the store.
pub struct Reader {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
}

/// Aborts the query of a [`Reader`]. Does nothing while none runs.
pub struct Interrupter(InterruptHandle);

impl Interrupter {
    /// Aborts the query.
    pub fn interrupt(&self) {
        self.0.interrupt();
    }
}

impl Store {
    /// Opens the store for writing, or creates it; checks its pages, and migrates an older schema to the newest. Turns
    /// that an earlier process began and did not end are unchanged until [`close_unfinished`](Self::close_unfinished).
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it open; other variants for a defective file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed =
            |action| move |source| StoreError::File { action, path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed("make the folder of"))?;
        }
        let lock = lock(path)?;
        // SQLite gives the files next to it (-wal, -shm) the same mode.
        let made =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let mode = mode_in(path.parent());
        made.and_then(|file| file.set_permissions(Permissions::from_mode(mode)))
            .map_err(failed("make"))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut reader = Reader::connect(path, flags)?;
        let of = |source| StoreError::of(path, source);
        reader.check_whose(true)?;
        let db = &mut reader.db;
        // A commit waits for the disk, so that committed entries survive a crash.
        db.pragma_update(None, "journal_mode", "wal").map_err(of)?;
        db.pragma_update(None, "synchronous", "full").map_err(of)?;
        db.pragma_update(None, "foreign_keys", true).map_err(of)?;
        db.pragma_update(None, "journal_size_limit", 64 << 20).map_err(of)?;
        schema::migrate(db).map_err(of)?;
        reader.check_pages()?;
        Ok(Self { reader, _lock: lock })
    }
}

/// Leaves the store in one file. If a store has a write-ahead log, SQLite's readers need the log's index next to it,
/// and create it if it is missing. A reader without write permission for the folder, such as the dashboard's user,
/// could not open a store that was closed with the log still declared. If readers have it open now, the log and its
/// index stay, and serve them and later readers.
impl Drop for Store {
    fn drop(&mut self) {
        let db = &self.reader.db;
        // No need to wait for readers: committed data is safe either way.
        let _ = db.busy_timeout(Duration::ZERO);
        let _ = db.pragma_update(None, "journal_mode", "delete");
    }
}

impl Deref for Store {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl Reader {
    /// Opens an existing store for reading.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none; other variants for a defective file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        let reader = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        reader.check_whose(false)?;
        Ok(reader)
    }

    /// Aborts the query that runs, from another thread. The query ends with an error.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.db.get_interrupt_handle())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let of = |source| StoreError::of(path, source);
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(of)?;
        db.busy_timeout(PATIENCE).map_err(of)?;
        Ok(Self { db, path: path.to_owned() })
    }

    fn check_whose(&self, may_be_new: bool) -> Result<(), StoreError> {
        let path = self.path.clone();
        let of = |source| StoreError::of(&self.path, source);
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = self.db.query_row(tables, [], |row| row.get(0)).map_err(of)?;
        if tables == 0 && may_be_new {
            return Ok(());
        }
        if schema::application(&self.db).map_err(of)? != APPLICATION {
            return Err(StoreError::Foreign { path });
        }
        let (found, known) = (schema::layout(&self.db).map_err(of)?, schema::newest());
        if found > known {
            return Err(StoreError::TooNew { path, found, known });
        }
        Ok(())
    }

    /// Checks every page, but does not compare indexes with their tables: limited only by the speed of reading.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first inconsistency.
    pub fn check_pages(&self) -> Result<(), StoreError> {
        self.check("PRAGMA quick_check(1)")
    }

    /// Checks every page, compares indexes with their tables, and checks for orphaned rows.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first inconsistency.
    pub fn check_all(&self) -> Result<(), StoreError> {
        self.check("PRAGMA integrity_check(1)")?;
        let of = |source| StoreError::of(&self.path, source);
        let strays = "SELECT count(*) FROM pragma_foreign_key_check";
        let strays: i64 = self.db.query_row(strays, [], |row| row.get(0)).map_err(of)?;
        if strays > 0 {
            return Err(self.damaged(format!("{strays} rows belong to none")));
        }
        Ok(())
    }

    fn check(&self, pragma: &str) -> Result<(), StoreError> {
        let result = self.db.query_row(pragma, [], |row| row.get::<_, String>(0));
        match result.map_err(|source| StoreError::of(&self.path, source))?.as_str() {
            "ok" => Ok(()),
            problem => Err(self.damaged(problem.to_owned())),
        }
    }

    pub(crate) fn damaged(&self, problem: String) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), problem }
    }
}

/// The mode of a store in this folder: it names the relays that are being measured, so only its owner may read it. In a
/// folder with the set-group-ID bit the folder's group may, too: the administrator who set that bit chose this group.
fn mode_in(folder: Option<&Path>) -> u32 {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_shared = fs::metadata(folder)
        .is_ok_and(|metadata| metadata.permissions().mode() & SET_GROUP_ID != 0);
    if is_shared { 0o640 } else { 0o600 }
}

/// A lock in a separate file: SQLite's are taken and released with each transaction. A process that can open the file
/// can hold the lock and so prevent the coordinator from starting, so only the owner can open it.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let failed = |source| StoreError::File { action: "lock", path: name.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name);
    let file = file.map_err(failed)?;
    // From a version that let all users open it.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests;
