//! Publishes a bandwidth file atomically where tor reads it.

use files::Access;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{BandwidthFile, NodeIdStyle, RenderError};
use crate::text;

/// The name of the link to the newest file: what `V3BandwidthsFile` should point to.
pub const LATEST: &str = "latest.v3bw";

const SUFFIX: &str = ".v3bw";

/// Why a bandwidth file was not written. The previous one is still in place.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is invalid.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The directory or a file in it cannot be read or written.
    #[error(
        "can't {action} {}: {source}; check that the directory exists, belongs to this program's \
         user and has free space",
        path.display()
    )]
    Io {
        /// The failed operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Another program is writing to the directory.
    #[error(
        "another program is writing to {}; stop it, or give each its own directory",
        dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
}

/// Where a bandwidth file was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// The file, `YYYYMMDD-HHMMSS.v3bw`.
    pub path: PathBuf,
    /// The link [`LATEST`], which points to the file if it was to be replaced.
    pub latest: PathBuf,
}

impl BandwidthFile {
    /// Writes the file into a directory, then points [`LATEST`] at it.
    ///
    /// Readers see the old file or the new one, never a part, even after a crash. The name is
    /// derived from `file_created`, or else from the timestamp. Existing links at either name are
    /// replaced, never followed. A lock on the directory excludes a second writer.
    ///
    /// # Errors
    /// [`StoreError`] with the path and the remedy. Readers then still see the previous file.
    pub fn write_atomically(&self, dir: &Path, style: NodeIdStyle) -> Result<Written, StoreError> {
        self.write_if(dir, style, true)
    }

    /// Writes the file as [`write_atomically`](Self::write_atomically) does, but points [`LATEST`] at it only if
    /// `replaces_latest`.
    ///
    /// # Errors
    /// As of [`write_atomically`](Self::write_atomically).
    pub fn write_if(
        &self,
        dir: &Path,
        style: NodeIdStyle,
        replaces_latest: bool,
    ) -> Result<Written, StoreError> {
        let text = self.to_text(style)?;
        let lock = lock(dir)?;

        let latest = dir.join(LATEST);
        let created_s = self.header.file_created.unwrap_or(self.timestamp);
        let mut name = dated_name(created_s);
        // A file of the same second is not overwritten where readers look at it.
        if !replaces_latest && fs::read_link(&latest).is_ok_and(|target| target == Path::new(&name))
        {
            name = dated_name(created_s.saturating_add(1));
        }
        let path = dir.join(&name);
        // Tor runs as another user, and the content is public.
        files::replace_entry(&path, text.as_bytes(), Access::Everyone)
            .map_err(failed("write", &path))?;
        if replaces_latest {
            // A link cannot be changed in place: a new one is renamed over it.
            tempfile::Builder::new()
                .prefix(".v3bw-")
                .make_in(dir, |link| symlink(&name, link))
                .map_err(failed("create a link in", dir))?
                .into_temp_path()
                .persist(&latest)
                .map_err(|e| failed("rename a link to", &latest)(e.error))?;
        }
        // The directory's entries must be synced separately from the files.
        lock.sync_all().map_err(failed("save", dir))?;
        Ok(Written { path, latest })
    }
}

/// The name of a file that was created at this time, in Unix seconds.
fn dated_name(created_s: u64) -> String {
    format!("{}{SUFFIX}", text::civil(created_s).strftime("%Y%m%d-%H%M%S"))
}

/// Removes old files with names as [`BandwidthFile::write_atomically`] gives them, except the
/// newest `keep` and the one that [`LATEST`] points to. Returns the removed files.
///
/// # Errors
/// [`StoreError`], as for writing.
pub fn remove_old(dir: &Path, keep: usize) -> Result<Vec<PathBuf>, StoreError> {
    remove(dir, |names| names.truncate(names.len().saturating_sub(keep)))
}

/// Removes files of which there is a newer one of the same day (UTC), except the newest `keep`:
/// hourly files then leave room for a month of daily ones. Returns the removed files.
///
/// # Errors
/// [`StoreError`], as for writing.
pub fn remove_superseded(dir: &Path, keep: usize) -> Result<Vec<PathBuf>, StoreError> {
    let day = |name: &PathBuf| name.to_str().and_then(|name| name.get(..8)).map(str::to_owned);
    remove(dir, |names| {
        let is_last = |at: usize| names.get(at).and_then(day) != names.get(at + 1).and_then(day);
        let old = names.len().saturating_sub(keep);
        let superseded: Vec<bool> = (0..old).map(|at| !is_last(at)).collect();
        let mut superseded = superseded.into_iter();
        names.retain(|_| superseded.next().unwrap_or(false));
    })
}

/// Removes the files whose names are later than that of `newest`: they were written by a clock that was ahead. Returns the removed
/// files.
///
/// # Errors
/// [`StoreError`], as for writing.
pub fn remove_later(dir: &Path, newest: &Path) -> Result<Vec<PathBuf>, StoreError> {
    remove(dir, |names| names.retain(|name| Some(name.as_os_str()) > newest.file_name()))
}

/// Removes the files that `choose` returns, except the one that [`LATEST`] points to.
fn remove(dir: &Path, choose: impl FnOnce(&mut Vec<PathBuf>)) -> Result<Vec<PathBuf>, StoreError> {
    let _lock = lock(dir)?;
    let mut names = names(dir).map_err(failed("list", dir))?;
    choose(&mut names);
    let latest = fs::read_link(dir.join(LATEST)).ok();
    names.retain(|name| Some(name) != latest.as_ref());
    for name in &mut names {
        *name = dir.join(&*name);
        fs::remove_file(&*name).map_err(failed("remove", name))?;
    }
    Ok(names)
}

/// The files of a directory that [`BandwidthFile::write_atomically`] has written, oldest first.
///
/// # Errors
/// [`StoreError`] if the directory cannot be read.
pub fn stored(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let names = names(dir).map_err(failed("list", dir))?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir(dir)?.map(|entry| entry.map(|e| e.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let ours = names.iter().filter(|name| name.to_str().is_some_and(is_ours));
    let mut ours: Vec<PathBuf> = ours.map(PathBuf::from).collect();
    ours.sort_unstable();
    Ok(ours)
}

/// Whether a name is `YYYYMMDD-HHMMSS.v3bw`.
fn is_ours(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    stem.len() == 15
        && stem
            .bytes()
            .enumerate()
            .all(|(i, b)| if i == 8 { b == b'-' } else { b.is_ascii_digit() })
}

/// Locks the directory itself: a lock file would be another name that an attacker could create
/// first.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let handle = File::open(dir).map_err(failed("open", dir))?;
    match handle.try_lock() {
        Ok(()) => Ok(handle),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("lock", dir)(source)),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}
