//! A dataset: a folder with a manifest and one folder per table, whose files are partitioned by month.
//!
//! ```text
//! DATASET/manifest.jsonl                              imported sources and digests of files, one per line
//! DATASET/statuses/month=2019-07/part.parquet         sorted by relay and time, zstd
//! DATASET/votes/day=2019-07-01/part.parquet
//! ```
//!
//! The file of a month or day is a set of rows. Adding rows reads the file, forms the union, and replaces the file atomically. So the order
//! of imports does not matter, a repeated import changes nothing, and an import that is killed leaves each file old or new.
//!
//! A single process at a time changes a dataset, as a [`Writer`]. Whatever reads a file first compares its SHA-256 with that in the
//! manifest: Parquet itself detects less than half of single flipped bits.
//!
//! A dataset in object storage is used by a local copy, which is such a folder: see [`remote`].

mod digests;
mod location;
pub mod remote;
mod writer;

pub use digests::Checked;
pub use location::{ChangeOptions, Location};
pub use writer::Writer;
pub(crate) use writer::readable;

use crate::error::ArchiveError;
use crate::rows::{Relays, Row};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use remote::CopyOf;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per batch.
const BATCH_ROWS: usize = 1 << 16;
/// Maximum number of batches that wait to be encoded.
const BATCHES: usize = 2;
/// Rows per row group. A query holds one row group of each month in memory.
const GROUP_ROWS: usize = 1 << 18;
/// Maximum number of rows of a file. A month of 40,000 relays has 30 million.
pub(crate) const MONTH_ROWS_MAX: usize = 1 << 25;
/// The name of the file of a month or day.
const PART: &str = "part.parquet";
/// The name of the manifest.
const MANIFEST: &str = "manifest.jsonl";

/// A dataset on disk.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    /// The dataset in object storage of which the folder is a copy.
    copy_of: Option<Arc<CopyOf>>,
}

/// What was imported from one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The file or folder.
    pub source: PathBuf,
    /// SHA-256 of its content, in hex; for a folder of tables, over its files in the order of their names. Empty if the importer
    /// refused the source before its end. Such a source is read again by every import.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Number of imported documents, by kind.
    pub documents: BTreeMap<String, u64>,
    /// Number of documents that no table needs, by kind.
    pub skipped: BTreeMap<String, u64>,
    /// Number of damaged documents.
    pub damaged: u64,
    /// Whether the source is truncated, or was refused in the middle.
    pub is_truncated: bool,
    /// Whether consensuses without enough signatures were left out.
    #[serde(default)]
    pub is_verified: bool,
}

impl Dataset {
    /// Opens the dataset in this folder, or creates it.
    ///
    /// # Errors
    /// The folder cannot be created, or is neither empty nor a dataset.
    pub fn create(folder: &Path) -> Result<Self, ArchiveError> {
        fs::create_dir_all(folder).map_err(ArchiveError::file("make the dataset", folder))?;
        let mut entries = fs::read_dir(folder).map_err(ArchiveError::file("read", folder))?;
        let is_empty = entries.next().is_none();
        let manifest = folder.join(MANIFEST);
        // The manifest is the first file of a dataset, also of one that another process is just creating.
        if !is_empty && !manifest.exists() {
            let problem = "not a dataset: the folder is not empty and has no manifest.jsonl; choose a new folder".to_owned();
            return Err(ArchiveError::Source { path: folder.to_owned(), problem });
        }
        let opened = File::options().append(true).create(true).open(&manifest);
        // A dataset that others own can still be read.
        if !manifest.exists() {
            opened.map_err(ArchiveError::file("write", &manifest))?;
        }
        Ok(Self { folder: folder.to_owned(), copy_of: None })
    }

    /// Opens the dataset in this folder.
    ///
    /// # Errors
    /// The folder is not a dataset.
    pub fn open(folder: &Path) -> Result<Self, ArchiveError> {
        if folder.join(MANIFEST).is_file() {
            return Ok(Self { folder: folder.to_owned(), copy_of: None });
        }
        let problem =
            "not a dataset: there is no manifest.jsonl; create one with `flashflow-archive import`"
                .to_owned();
        Err(ArchiveError::Source { path: folder.to_owned(), problem })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its name for users: the folder, or the name of the dataset in object storage.
    #[must_use]
    pub fn name(&self) -> &Path {
        self.copy_of.as_ref().map_or(&self.folder, |copy| &copy.name)
    }

    /// The imported sources, in order. Incomplete lines from a crash are skipped.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn manifest(&self) -> Result<Vec<Imported>, ArchiveError> {
        let mut entries = Vec::new();
        self.lines(|entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Calls `each` with the lines of one kind in the manifest. Lines of other kinds, and incomplete ones, are skipped.
    fn lines<T: DeserializeOwned>(&self, each: impl FnMut(T)) -> Result<(), ArchiveError> {
        let path = self.folder.join(MANIFEST);
        let read = File::open(&path).and_then(|file| lines(BufReader::new(file), each));
        read.map_err(ArchiveError::file("read", &path))
    }

    /// The months or days of a table, in ascending order, and their files.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn parts(&self, table: &str) -> Result<Vec<(String, PathBuf)>, ArchiveError> {
        let folder = self.folder.join(table);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut parts = Vec::new();
        for entry in fs::read_dir(&folder).map_err(ArchiveError::file("read", &folder))? {
            let entry = entry.map_err(ArchiveError::file("read", &folder))?;
            let name = entry.file_name();
            let part = entry.path().join(PART);
            if let Some(("month" | "day", time)) =
                name.to_str().and_then(|name| name.split_once('='))
                && part.is_file()
            {
                parts.push((time.to_owned(), part));
            }
        }
        parts.sort();
        Ok(parts)
    }

    /// Whether a table has any rows.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn has(&self, table: &str) -> Result<bool, ArchiveError> {
        Ok(!self.parts(table)?.is_empty())
    }

    /// The rows of a month or day.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn read<R: Row>(&self, part: &str, relays: &mut Relays) -> Result<Vec<R>, ArchiveError> {
        let path = self.part::<R>(part);
        self.check_file(&self.digests()?, &path)?;
        let mut rows = Vec::new();
        if !path.exists() {
            return Ok(rows);
        }
        for batch in batches(&path)? {
            let batch = batch.map_err(ArchiveError::damaged(&path))?;
            R::from_batch(&batch, relays, &mut rows).map_err(ArchiveError::damaged(&path))?;
        }
        Ok(rows)
    }

    /// The states of all files.
    pub(crate) fn state(&self) -> Result<Vec<FileState>, ArchiveError> {
        let mut state = Vec::new();
        for (table, ..) in crate::rows::tables() {
            for (_, path) in self.parts(table)? {
                let found = fs::metadata(&path).map_err(ArchiveError::file("read", &path))?;
                let modified = (found.mtime(), found.mtime_nsec());
                state.push(FileState { path, modified, inode: found.ino(), bytes: found.len() });
            }
        }
        Ok(state)
    }

    /// The rows of all months, sorted by month, relay and time.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read_all<R: Row>(&self, relays: &mut Relays) -> Result<Vec<R>, ArchiveError> {
        let mut rows = Vec::new();
        for (part, _) in self.parts(R::TABLE)? {
            rows.extend(self.read::<R>(&part, relays)?);
        }
        Ok(rows)
    }

    fn part<R: Row>(&self, part: &str) -> PathBuf {
        self.folder.join(R::TABLE).join(format!("{}={part}", R::SPAN.column())).join(PART)
    }
}

/// Calls `each` with the lines of one kind in a manifest.
fn lines<T: DeserializeOwned>(manifest: impl BufRead, mut each: impl FnMut(T)) -> io::Result<()> {
    for line in manifest.split(b'\n') {
        if let Ok(line) = serde_json::from_slice(&line?) {
            each(line);
        }
    }
    Ok(())
}

/// Whatever changes a file changes one of these.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    path: PathBuf,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    inode: u64,
    bytes: u64,
}

fn batches(path: &Path) -> Result<ParquetRecordBatchReader, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::file("read", path))?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
        .map_err(ArchiveError::damaged(path))
}

#[cfg(test)]
mod tests;
