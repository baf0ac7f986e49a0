//! Writes to a dataset. Only one process at a time can do that; it holds a lock on the manifest.

use super::digests::FileLine;
use super::{BATCH_ROWS, BATCHES, Dataset, GROUP_ROWS, Imported, MANIFEST, MONTH_ROWS_MAX};
use crate::error::ArchiveError;
use crate::rows::{Relays, Row};
use crate::times;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Pause between two attempts to lock a dataset.
const PAUSE: Duration = Duration::from_millis(100);

/// The right to change a dataset. Readers are not blocked: they see each file as it was before or after a change.
#[derive(Debug)]
pub struct Writer {
    dataset: Dataset,
    /// Locked until it is closed.
    manifest: File,
}

impl Dataset {
    /// Locks the dataset for changes. While another process has the lock, the method calls `waits` ten times a second; if that returns
    /// false, there is no writer.
    ///
    /// # Errors
    /// The manifest cannot be opened for writing or locked.
    pub fn writer(&self, waits: &mut dyn FnMut() -> bool) -> Result<Option<Writer>, ArchiveError> {
        let path = self.folder.join(MANIFEST);
        let manifest = OpenOptions::new().append(true).open(&path);
        let manifest = manifest.map_err(ArchiveError::file("write", &path))?;
        let is_locked = lock(&manifest, &path, waits)?;
        Ok(is_locked.then(|| Writer { dataset: self.clone(), manifest }))
    }
}

/// Locks a file exclusively until it is closed. While another process has the lock, the function calls `waits` ten times a second; if that
/// returns false, the file is not locked.
pub(super) fn lock(
    file: &File,
    path: &Path,
    waits: &mut dyn FnMut() -> bool,
) -> Result<bool, ArchiveError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if waits() => thread::park_timeout(PAUSE),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(ArchiveError::file("lock", path)(error)),
        }
    }
}

impl Writer {
    /// Notes an imported source.
    pub(crate) fn note(&mut self, entry: &Imported) -> Result<(), ArchiveError> {
        self.append(entry)
    }

    /// Adds a line to the manifest.
    fn append(&mut self, line: &impl Serialize) -> Result<(), ArchiveError> {
        let mut write = || {
            // A crash may have left an incomplete line: begin a new one. One call writes all, so that readers see whole lines.
            let text = format!("\n{}\n", serde_json::to_string(line)?);
            self.manifest.write_all(text.as_bytes())?;
            self.manifest.sync_all()
        };
        write().map_err(ArchiveError::file("write", &self.dataset.folder.join(MANIFEST)))
    }

    /// Adds rows to those of the dataset. Returns the number of new rows.
    ///
    /// # Errors
    /// A file cannot be read or written, or a month would have too many rows.
    pub fn add<R: Row>(&mut self, rows: Vec<R>, relays: &mut Relays) -> Result<u64, ArchiveError> {
        let day = |row: &R| row.time_s().div_euclid(times::DAY_S);
        let mut parts: BTreeMap<String, Vec<R>> = BTreeMap::new();
        for rows in rows.chunk_by(|a, b| day(a) == day(b)) {
            parts.entry(R::SPAN.value(rows[0].time_s())).or_default().extend_from_slice(rows);
        }
        drop(rows);
        let mut new = 0;
        for (part, rows) in parts {
            new += self.unite(&part, rows, relays)?;
        }
        Ok(new)
    }

    fn unite<R: Row>(
        &mut self,
        part: &str,
        mut rows: Vec<R>,
        relays: &mut Relays,
    ) -> Result<u64, ArchiveError> {
        let path = self.dataset.part::<R>(part);
        // A file that was removed because it was damaged is written anew.
        let known = match path.exists() {
            true => self.dataset.read::<R>(part, relays)?,
            false => Vec::new(),
        };
        let before = known.len();
        if before + rows.len() > MONTH_ROWS_MAX {
            let problem = format!(
                "the file would have {} rows, more than {MONTH_ROWS_MAX}",
                before + rows.len()
            );
            return Err(ArchiveError::Source { path, problem });
        }
        rows.extend(known);
        rows = R::united(sorted(&rows, relays));
        if rows.len() == before {
            // Of duplicates with different values the first in order is kept, so the file may change although the count does not.
            let known = self.dataset.read::<R>(part, relays)?;
            if rows.iter().zip(&known).all(|(a, b)| a.relay() == b.relay() && a.order(b).is_eq()) {
                return Ok(0);
            }
        }
        self.write(&path, &rows, relays)?;
        Ok((rows.len() - before) as u64)
    }

    /// Replaces a file atomically.
    fn write<R: Row>(
        &mut self,
        path: &Path,
        rows: &[R],
        relays: &Relays,
    ) -> Result<(), ArchiveError> {
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
        let mut writer = writer.map_err(|error| failed()(cause(error)))?;
        // One thread converts rows to columns, the other encodes and compresses them.
        let written = thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel(BATCHES);
            scope.spawn(move || {
                let batches = rows.chunks(BATCH_ROWS).map(|rows| R::to_batch(rows, relays));
                batches.map(|batch| sender.send(batch)).all(|sent| sent.is_ok())
            });
            batches.into_iter().try_for_each(|batch| writer.write(&batch?))
        });
        written.map_err(|error| failed()(cause(error)))?;
        writer.finish().map_err(|error| failed()(cause(error)))?;
        writer.inner_mut().flush().map_err(failed())?;
        drop(writer);
        file.as_file().sync_all().map_err(failed())?;
        let line = FileLine::new(&self.dataset, path, file.path()).map_err(failed())?;
        self.append(&line)?;
        let file = file.persist(path).map_err(|error| failed()(error.error))?;
        readable(&file).map_err(failed())?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed())?;
        self.append(&line)
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

/// Archives are public: other users may read what is made of them, unlike other temporary files.
pub(crate) fn readable(file: &File) -> io::Result<()> {
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
