//! A dataset: a folder with a manifest and one folder per table, whose files are partitioned by month.
//!
//! ```text
//! DATASET/manifest.jsonl                              imported sources, one per line
//! DATASET/statuses/month=2019-07/part.parquet         sorted by relay and time, zstd
//! DATASET/descriptors/month=2019-07/part.parquet
//! ```
//!
//! The file of a month is a set of rows. Adding rows reads the file, forms the union, and replaces the file atomically. So the order
//! of imports does not matter, a repeated import changes nothing, and an import that is killed leaves each file old or new.

use crate::error::ArchiveError;
use crate::rows::{Relays, Row};
use crate::times;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

/// Rows per batch.
const BATCH_ROWS: usize = 1 << 16;
/// Maximum number of batches that wait to be encoded.
const BATCHES: usize = 2;
/// Rows per row group. A query holds one row group of each month in memory.
const GROUP_ROWS: usize = 1 << 18;
/// Maximum number of rows of a month. A month of 40,000 relays has 30 million.
pub(crate) const MONTH_ROWS_MAX: usize = 1 << 25;
/// The name of a month's file.
const PART: &str = "part.parquet";

/// A dataset on disk.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
}

/// What was imported from one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
        let manifest = folder.join("manifest.jsonl");
        if !manifest.exists() {
            if entries.next().is_some() {
                let problem = "not a dataset: the folder is not empty and has no manifest.jsonl; choose a new folder".to_owned();
                return Err(ArchiveError::Source { path: folder.to_owned(), problem });
            }
            File::create(&manifest).map_err(ArchiveError::file("write", &manifest))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Opens the dataset in this folder.
    ///
    /// # Errors
    /// The folder is not a dataset.
    pub fn open(folder: &Path) -> Result<Self, ArchiveError> {
        if folder.join("manifest.jsonl").is_file() {
            return Ok(Self { folder: folder.to_owned() });
        }
        let problem = "not a dataset: there is no manifest.jsonl; create one with `flashflow-lab archive import`".to_owned();
        Err(ArchiveError::Source { path: folder.to_owned(), problem })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The imported sources, in order. Incomplete lines from a crash are skipped.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn manifest(&self) -> Result<Vec<Imported>, ArchiveError> {
        let path = self.folder.join("manifest.jsonl");
        let file = File::open(&path).map_err(ArchiveError::file("read", &path))?;
        let mut entries = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(ArchiveError::file("read", &path))?;
            if let Ok(entry) = serde_json::from_str(&line) {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// Adds a line to the manifest.
    pub(crate) fn note(&self, entry: &Imported) -> Result<(), ArchiveError> {
        let path = self.folder.join("manifest.jsonl");
        let write = || {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            // A crash may have left an incomplete line: begin a new one.
            writeln!(file, "\n{}", serde_json::to_string(entry)?)?;
            file.sync_all()
        };
        write().map_err(ArchiveError::file("write", &path))
    }

    /// The months of a table, in ascending order, and their files.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn months(&self, table: &str) -> Result<Vec<(String, PathBuf)>, ArchiveError> {
        let folder = self.folder.join(table);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut months = Vec::new();
        for entry in fs::read_dir(&folder).map_err(ArchiveError::file("read", &folder))? {
            let entry = entry.map_err(ArchiveError::file("read", &folder))?;
            let name = entry.file_name();
            let part = entry.path().join(PART);
            if let Some(month) = name.to_str().and_then(|it| it.strip_prefix("month="))
                && part.is_file()
            {
                months.push((month.to_owned(), part));
            }
        }
        months.sort();
        Ok(months)
    }

    /// Whether a table has any rows.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn has(&self, table: &str) -> Result<bool, ArchiveError> {
        Ok(!self.months(table)?.is_empty())
    }

    /// The rows of a month.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read<R: Row>(&self, month: &str, relays: &mut Relays) -> Result<Vec<R>, ArchiveError> {
        let path = self.part::<R>(month);
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

    /// Reads all files: first the footers, which is fast, then the rows.
    ///
    /// # Errors
    /// A file is damaged or cannot be read.
    #[cfg(feature = "engine")]
    pub(crate) fn verify(&self) -> Result<(), ArchiveError> {
        let mut files = Vec::new();
        for (table, ..) in crate::rows::tables() {
            files.extend(self.months(table)?);
        }
        for (_, path) in &files {
            batches(path)?;
        }
        for (_, path) in &files {
            for batch in batches(path)? {
                batch.map_err(ArchiveError::damaged(path))?;
            }
        }
        Ok(())
    }

    /// The rows of all months, sorted by month, relay and time.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read_all<R: Row>(&self, relays: &mut Relays) -> Result<Vec<R>, ArchiveError> {
        let mut rows = Vec::new();
        for (month, _) in self.months(R::TABLE)? {
            rows.extend(self.read::<R>(&month, relays)?);
        }
        Ok(rows)
    }

    /// Adds rows to those of the dataset. Returns the number of new rows.
    ///
    /// # Errors
    /// A file cannot be read or written, or a month would have too many rows.
    pub fn add<R: Row>(&self, rows: Vec<R>, relays: &mut Relays) -> Result<u64, ArchiveError> {
        let day = |row: &R| row.time_s().div_euclid(times::DAY_S);
        let mut months: BTreeMap<String, Vec<R>> = BTreeMap::new();
        for rows in rows.chunk_by(|a, b| day(a) == day(b)) {
            months.entry(times::month(rows[0].time_s())).or_default().extend_from_slice(rows);
        }
        drop(rows);
        let mut new = 0;
        for (month, rows) in months {
            new += self.unite(&month, rows, relays)?;
        }
        Ok(new)
    }

    fn unite<R: Row>(
        &self,
        month: &str,
        mut rows: Vec<R>,
        relays: &mut Relays,
    ) -> Result<u64, ArchiveError> {
        let path = self.part::<R>(month);
        let known = self.read::<R>(month, relays)?;
        let before = known.len();
        if before + rows.len() > MONTH_ROWS_MAX {
            let problem = format!(
                "the month would have {} rows, more than {MONTH_ROWS_MAX}",
                before + rows.len()
            );
            return Err(ArchiveError::Source { path, problem });
        }
        rows.extend(known);
        rows = sorted(&rows, relays);
        rows.dedup_by(|second, first| second.is_duplicate_of(first));
        if rows.len() == before {
            // Of duplicates with different values the first in order is kept, so the file may change although the count does not.
            let known = self.read::<R>(month, relays)?;
            if rows.iter().zip(&known).all(|(a, b)| a.relay() == b.relay() && a.order(b).is_eq()) {
                return Ok(0);
            }
        }
        self.write(&path, &rows, relays)?;
        Ok((rows.len() - before) as u64)
    }

    /// Replaces the file of a month atomically.
    fn write<R: Row>(&self, path: &Path, rows: &[R], relays: &Relays) -> Result<(), ArchiveError> {
        let folder = files::folder_of(path);
        let failed = || ArchiveError::file("write", path);
        fs::create_dir_all(folder).map_err(failed())?;
        let file = tempfile::Builder::new().prefix(".part").tempfile_in(folder).map_err(failed())?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_sorting_columns(Some(vec![sorted_by(0), sorted_by(1)]))
            .set_created_by(concat!("flashflow ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer =
            ArrowWriter::try_new(BufWriter::new(file.as_file()), R::schema(), Some(properties));
        let mut writer = writer.map_err(|it| failed()(cause(it)))?;
        // One thread converts rows to columns, the other encodes and compresses them.
        let written = thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel(BATCHES);
            scope.spawn(move || {
                let batches = rows.chunks(BATCH_ROWS).map(|rows| R::to_batch(rows, relays));
                batches.map(|batch| sender.send(batch)).all(|it| it.is_ok())
            });
            batches.into_iter().try_for_each(|batch| writer.write(&batch?))
        });
        written.map_err(|it| failed()(cause(it)))?;
        writer.finish().map_err(|it| failed()(cause(it)))?;
        writer.inner_mut().flush().map_err(failed())?;
        drop(writer);
        file.as_file().sync_all().map_err(failed())?;
        let file = file.persist(path).map_err(|it| failed()(it.error))?;
        readable(&file).map_err(failed())?;
        File::open(folder).and_then(|it| it.sync_all()).map_err(failed())
    }

    fn part<R: Row>(&self, month: &str) -> PathBuf {
        self.folder.join(R::TABLE).join(format!("month={month}")).join(PART)
    }
}

fn batches(path: &Path) -> Result<ParquetRecordBatchReader, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::file("read", path))?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|it| it.with_batch_size(BATCH_ROWS).build())
        .map_err(ArchiveError::damaged(path))
}

/// The I/O error in an error of Parquet, or else that error itself.
fn cause(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// Archives are public: other users may read the dataset, unlike other temporary files.
fn readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

const fn sorted_by(column_idx: i32) -> SortingColumn {
    SortingColumn { column_idx, descending: false, nulls_first: false }
}

/// Sorts rows by fingerprint and time: a counting sort by relay, since sources are already sorted by time.
fn sorted<R: Row>(rows: &[R], relays: &Relays) -> Vec<R> {
    let ranks = relays.ranks();
    let rank = |row: &R| ranks[row.relay().0 as usize] as usize;
    // The index of each relay's next row.
    let mut places = vec![0_u32; ranks.len() + 1];
    for row in rows {
        places[rank(row) + 1] += 1;
    }
    for index in 1..places.len() {
        places[index] += places[index - 1];
    }
    let mut order = vec![0_u32; rows.len()];
    for (index, row) in (0..).zip(rows) {
        let place = &mut places[rank(row)];
        order[*place as usize] = index;
        *place += 1;
    }
    let mut sorted: Vec<R> = order.iter().map(|index| rows[*index as usize].clone()).collect();
    for rows in sorted.chunk_by_mut(|a, b| a.relay() == b.relay()) {
        rows.sort_by(R::order);
    }
    sorted
}

#[cfg(test)]
mod tests;
