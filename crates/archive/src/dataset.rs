//! A dataset: a folder with a table in each folder, by month, and a manifest.
//!
//! ```text
//! DATASET/manifest.jsonl                              what was imported, one source a line
//! DATASET/statuses/month=2019-07/part.parquet         sorted by relay and time, zstd
//! DATASET/descriptors/month=2019-07/part.parquet
//! ```
//!
//! The file of a month is a set of rows. Adding rows reads the file, unites both sets, and replaces the file as a whole. So the order of
//! imports does not matter, importing twice changes nothing, and a killed import leaves each month as it was before or after.

use crate::error::ArchiveError;
use crate::rows::{Relays, Row};
use crate::times;
use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
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

/// Rows of a batch that is written at once.
const BATCH_ROWS: usize = 1 << 16;
/// Maximum number of batches that wait to be encoded.
const BATCHES: usize = 2;
/// Rows of a row group: a reader holds one of each month in memory at once.
const GROUP_ROWS: usize = 1 << 18;
/// The most rows of a month. A month of 40,000 relays has 30 million.
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
    /// SHA-256 of its content, in hex; of a folder of tables, over its files in order of their names. Empty if the importer refused the source before
    /// its end: every import reads such a source again.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Documents by kind, of which the rows were made.
    pub documents: BTreeMap<String, u64>,
    /// Documents by kind that no table has a use for.
    pub skipped: BTreeMap<String, u64>,
    /// Documents that were damaged.
    pub damaged: u64,
    /// Whether the source ended before its end, or was refused in the middle.
    pub is_truncated: bool,
    /// Whether consensuses without enough signatures were left out.
    #[serde(default)]
    pub is_verified: bool,
}

impl Dataset {
    /// A dataset in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made, or is not empty and no dataset.
    pub fn create(folder: &Path) -> Result<Self, ArchiveError> {
        fs::create_dir_all(folder).map_err(ArchiveError::file("make the dataset", folder))?;
        let mut entries = fs::read_dir(folder).map_err(ArchiveError::file("read", folder))?;
        let manifest = folder.join("manifest.jsonl");
        if !manifest.exists() {
            if entries.next().is_some() {
                let problem = "the folder is not empty and has no manifest.jsonl, so it is no dataset; name a new folder".to_owned();
                return Err(ArchiveError::Source { path: folder.to_owned(), problem });
            }
            File::create(&manifest).map_err(ArchiveError::file("write", &manifest))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The dataset in this folder.
    ///
    /// # Errors
    /// There is none.
    pub fn open(folder: &Path) -> Result<Self, ArchiveError> {
        if folder.join("manifest.jsonl").is_file() {
            return Ok(Self { folder: folder.to_owned() });
        }
        let problem = "this is no dataset: there is no manifest.jsonl; make one with `flashflow-lab archive import`".to_owned();
        Err(ArchiveError::Source { path: folder.to_owned(), problem })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was imported, in order. A last line that a crash cut off is left out.
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
            // After a line that a crash cut off, this one begins anew.
            writeln!(file, "\n{}", serde_json::to_string(entry)?)?;
            file.sync_all()
        };
        write().map_err(ArchiveError::file("write", &path))
    }

    /// The months of a table, ascending, with their files.
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

    /// Whether a table has any row.
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
        let file = File::open(&path).map_err(ArchiveError::file("read", &path))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|it| it.with_batch_size(BATCH_ROWS).build());
        for batch in reader.map_err(ArchiveError::damaged(&path))? {
            let batch: RecordBatch = batch.map_err(ArchiveError::damaged(&path))?;
            R::from_batch(&batch, relays, &mut rows).map_err(ArchiveError::damaged(&path))?;
        }
        Ok(rows)
    }

    /// The rows of all months, ascending by month, relay and time.
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

    /// Unites rows with what there is. Returns how many are new.
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
            // A duplicate with other values replaces nothing that sorts before it; the file may still change.
            let known = self.read::<R>(month, relays)?;
            if rows.iter().zip(&known).all(|(a, b)| a.relay() == b.relay() && a.order(b).is_eq()) {
                return Ok(0);
            }
        }
        self.write(&path, &rows, relays)?;
        Ok((rows.len() - before) as u64)
    }

    /// Replaces a month's file as a whole.
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
        // One thread makes columns of rows, the other encodes and compresses them.
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

/// Rows by fingerprint and time. Sources have them by time, so they are only distributed to their relays.
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
