//! Imports sources of all kinds into a dataset.
//!
//! Archives are streamed and never unpacked. One thread decompresses, the calling thread splits the stream into documents and parses
//! them. Names inside archives are only printed: nothing is written outside the dataset. The manifest lists each completely imported
//! source with its digest, so that it is not imported again.

mod changes;
mod documents;
mod json;
mod places;
mod source;
mod speedtest;
mod tar;
mod verify;

use crate::dataset::{Dataset, Imported, MONTH_ROWS_MAX, Writer};
use crate::error::ArchiveError;
use crate::rows::Relays;
use documents::{Context, Documents, Kind, Piece, Rows};
use places::Places;
use sha2::{Digest as _, Sha256};
use source::Decompressed;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use verify::Verifier;

/// Maximum number of rows in memory before they are written, at 24 to 28 bytes each.
const PENDING_MAX: usize = 6_000_000;
/// Bytes between two progress events.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Maximum number of damaged documents of a source that are reported. The others are only counted.
const NAMED_MAX: u64 = 10;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Import sources again that are in the manifest.
    pub is_again: bool,
    /// File with certificates of authorities. Consensuses that are not signed by more than half of them are left out.
    pub certificates: Option<PathBuf>,
    /// Files in MaxMind's format with countries or autonomous systems of addresses.
    pub geoip: Vec<PathBuf>,
}

/// The result of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Imported sources, in order.
    pub imported: Vec<Imported>,
    /// Number of sources without a document that can be read, for instance with an unsupported compression. They are not in the manifest.
    pub unreadable: usize,
    /// Number of sources that were already in the manifest.
    pub known: usize,
    /// Number of new rows.
    pub new_rows: u64,
    /// Whether the import was interrupted.
    pub is_interrupted: bool,
}

impl ImportReport {
    /// Whether all documents of all sources are in the dataset, or of kinds that no table needs.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_whole = |entry: &Imported| !entry.is_truncated && entry.damaged == 0;
        !self.is_interrupted && self.unreadable == 0 && self.imported.iter().all(is_whole)
    }
}

/// The receiver of progress events.
pub trait Observer {
    /// `read` of `total` compressed bytes of the sources are read, and `parsed` bytes of documents are parsed.
    fn progress(&mut self, read: u64, total: u64, parsed: u64);
    /// A source or document cannot be used, or another import has locked the dataset.
    fn problem(&mut self, message: String);
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// One or more documents, or a tar of documents, optionally compressed.
    File(PathBuf),
    /// A folder of change tables: see docs/archives.md.
    Changes(PathBuf),
    /// The folder of the authors' speed test.
    SpeedTest(PathBuf),
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Changes(path) | Self::SpeedTest(path) => path,
        }
    }

    /// The files of the source.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        match self {
            Self::File(path) => Ok(vec![path.clone()]),
            Self::Changes(path) | Self::SpeedTest(path) => {
                let files: io::Result<Vec<PathBuf>> =
                    fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect();
                let mut files = files?;
                files.retain(|file| file.is_file());
                files.sort();
                Ok(files)
            }
        }
    }
}

/// Finds the sources in a file or folder. Symbolic links in folders are not followed.
fn sources(path: &Path, found: &mut Vec<Source>) -> Result<(), ArchiveError> {
    if !path.is_dir() {
        found.push(Source::File(path.to_owned()));
        return Ok(());
    }
    let has = |name: &str| changes::table_file(path, name).is_some();
    if has("presence.csv") && has("relays.csv") && has("snapshots.csv") {
        found.push(Source::Changes(path.to_owned()));
    } else if has("speedtest.diffs.json") {
        found.push(Source::SpeedTest(path.to_owned()));
    } else {
        let entries: io::Result<Vec<fs::DirEntry>> = fs::read_dir(path).and_then(Iterator::collect);
        let mut entries = entries.map_err(ArchiveError::file("read", path))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type().map_err(ArchiveError::file("read", &entry.path()))?;
            if kind.is_dir() {
                sources(&entry.path(), found)?;
            } else if kind.is_file() {
                found.push(Source::File(entry.path()));
            }
        }
    }
    Ok(())
}

/// Imports files and folders.
///
/// # Errors
/// A source cannot be opened, or the dataset cannot be written. While another process imports into the dataset, the function waits. Damaged
/// documents are not errors: they are reported to the observer, counted and left out.
pub fn import(
    dataset: &Dataset,
    paths: &[PathBuf],
    options: &ImportOptions,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<ImportReport, ArchiveError> {
    let mut found = Vec::new();
    for path in paths {
        fs::symlink_metadata(path).map_err(ArchiveError::file("read", path))?;
        sources(path, &mut found)?;
    }
    let verifier = options.certificates.as_deref().map(Verifier::read).transpose()?;
    let places = Places::read(&options.geoip)?;
    let mut is_told = false;
    let mut waits = || {
        if !std::mem::replace(&mut is_told, true) {
            let folder = dataset.name().display();
            observer.problem(format!(
                "{folder}: another import is changing the dataset; waiting for its end"
            ));
        }
        !stop.load(Ordering::Relaxed)
    };
    let Some(mut writer) = dataset.writer(&mut waits)? else {
        return Ok(ImportReport { is_interrupted: true, ..ImportReport::default() });
    };
    let mut known: BTreeMap<u64, Vec<Imported>> = BTreeMap::new();
    let manifest = dataset.manifest()?;
    let is_verified = verifier.is_some();
    // All rows of a verified dataset are verified. Rows without a manifest come from an interrupted import.
    let is_mixed = manifest.iter().any(|entry| entry.is_verified != is_verified)
        || is_verified && manifest.is_empty() && dataset.has("statuses")?;
    if is_mixed {
        let (had, has) = if is_verified { ("without", "with") } else { ("with", "without") };
        let problem = format!(
            "the dataset was imported {had} --verify before, and this import is {has} it; use a new dataset"
        );
        return Err(ArchiveError::Source { path: dataset.name().to_owned(), problem });
    }
    if let (Some(path), true) = (&options.certificates, manifest.is_empty()) {
        // An interrupted import leaves rows without a manifest line. This line records that later imports must verify as well.
        writer.note(&Imported { source: path.clone(), is_verified, ..Imported::default() })?;
    }
    for entry in manifest {
        if !options.is_again && !entry.sha256.is_empty() {
            known.entry(entry.bytes).or_default().push(entry);
        }
    }
    let mut sizes = Vec::new();
    for source in &found {
        sizes.push(size(source).map_err(ArchiveError::file("read", source.path()))?);
    }
    let mut importer = Importer {
        writer,
        context: Context { verifier: verifier.as_ref(), places: &places },
        relays: Relays::default(),
        pending: Rows::default(),
        unwritten: Vec::new(),
        report: ImportReport::default(),
        stop,
        observer,
        read: Arc::default(),
        parsed: 0,
        observed: 0,
        buffer: Vec::new(),
        total: sizes.iter().sum(),
    };
    for (source, bytes) in found.iter().zip(sizes) {
        let mut entry = Imported {
            source: source.path().to_owned(),
            bytes,
            is_verified,
            ..Imported::default()
        };
        // A digest is needed only if a known source has the same size.
        if let Some(entries) = known.get(&bytes) {
            let sha256 = digest(source).map_err(ArchiveError::file("read", source.path()))?;
            if entries.iter().any(|entry| entry.sha256 == sha256) {
                importer.report.known += 1;
                importer.read.total.fetch_add(bytes, Ordering::Relaxed);
                continue;
            }
            if !matches!(source, Source::File(_)) {
                entry.sha256 = sha256;
            }
        }
        importer.source(source, entry)?;
        if importer.is_stopped() {
            break;
        }
    }
    importer.flush()?;
    importer.report.is_interrupted = importer.is_stopped();
    Ok(importer.report)
}

fn size(source: &Source) -> io::Result<u64> {
    source.files()?.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

/// The SHA-256 of a source's files.
fn digest(source: &Source) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    for file in source.files()? {
        let mut file = File::open(file)?;
        loop {
            let len = file.read(&mut buffer)?;
            if len == 0 {
                break;
            }
            hash.update(&buffer[..len]);
        }
    }
    Ok(hex::encode(hash.finalize()))
}

struct Importer<'a> {
    writer: Writer,
    context: Context<'a>,
    relays: Relays,
    pending: Rows,
    /// Sources that are read, but whose rows are not all written.
    unwritten: Vec<Imported>,
    report: ImportReport,
    stop: &'a AtomicBool,
    observer: &'a mut dyn Observer,
    read: Arc<source::Count>,
    parsed: u64,
    /// The value of `parsed` at the last progress event.
    observed: u64,
    /// A reusable buffer for documents.
    buffer: Vec<u8>,
    total: u64,
}

/// The reason that a source was not read to its end.
enum Ended {
    /// The source cannot be read, or is damaged.
    Source(io::Error),
    /// The dataset cannot be written.
    Dataset(ArchiveError),
    /// The import was interrupted.
    Stopped,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}

impl Importer<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn source(&mut self, source: &Source, mut entry: Imported) -> Result<(), ArchiveError> {
        self.read.digest(); // Resets the digest if the previous source was not read to its end.
        if !matches!(source, Source::File(_)) && entry.sha256.is_empty() {
            entry.sha256 = digest(source).map_err(ArchiveError::file("read", source.path()))?;
        }
        match source {
            Source::File(path) => match source::open(path, Arc::clone(&self.read)) {
                Ok(opened) => self.file(path, opened, &mut entry)?,
                Err(error) => {
                    self.observer.problem(format!("{}: {error}; left out", path.display()));
                    self.report.unreadable += 1;
                    return Ok(());
                }
            },
            Source::Changes(path) => self.changes(path, &mut entry)?,
            Source::SpeedTest(path) => {
                speedtest::import(
                    path,
                    &mut self.writer,
                    &mut self.relays,
                    &mut entry,
                    &mut self.report.new_rows,
                )?;
                self.read.total.fetch_add(entry.bytes, Ordering::Relaxed);
            }
        }
        if self.is_stopped() {
            return Ok(()); // The source is not complete: the next import reads it again.
        }
        let is_empty = |(kind, _): (&String, &u64)| kind == documents::EMPTY;
        if entry.documents.is_empty() && entry.skipped.iter().all(is_empty) {
            let path = source.path().display();
            self.observer
                .problem(format!("{path}: there is no document in it; nothing is imported"));
            self.report.unreadable += 1;
            return Ok(());
        }
        if entry.is_truncated {
            // The next import reads it again, instead of skipping it as known.
            entry.sha256.clear();
        }
        self.unwritten.push(entry);
        if self.pending.len() >= PENDING_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes pending rows, then the manifest.
    fn flush(&mut self) -> Result<(), ArchiveError> {
        let pending = std::mem::take(&mut self.pending);
        let (writer, relays) = (&mut self.writer, &mut self.relays);
        let new_rows = &mut self.report.new_rows;
        *new_rows += writer.add(pending.statuses, relays)?;
        *new_rows += writer.add(pending.descriptors, relays)?;
        *new_rows += writer.add(pending.properties, relays)?;
        *new_rows += writer.add(pending.votes, relays)?;
        *new_rows += writer.add(pending.bandwidths, relays)?;
        *new_rows += writer.add(pending.staged, relays)?;
        for entry in std::mem::take(&mut self.unwritten) {
            self.writer.note(&entry)?;
            self.report.imported.push(entry);
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: &Path,
        opened: source::Opened,
        entry: &mut Imported,
    ) -> Result<(), ArchiveError> {
        self.progress();
        let read = thread::scope(|scope| {
            let mut stream = Decompressed::new(scope, opened.stream);
            match opened.is_tar {
                true => self.tar(&mut stream, path, entry),
                false => self.documents(stream, path, None, entry),
            }
        });
        match read {
            Ok(()) | Err(Ended::Stopped) => {}
            Err(Ended::Dataset(error)) => return Err(error),
            Err(Ended::Source(problem)) => {
                entry.is_truncated = true;
                self.observer.problem(format!(
                    "{}: {problem}; the documents before it are kept",
                    path.display()
                ));
            }
        }
        let (sha256, bytes) = self.read.digest();
        if bytes == entry.bytes {
            entry.sha256 = sha256;
        }
        Ok(())
    }

    fn progress(&mut self) {
        self.observed = self.parsed;
        let read = self.read.total.load(Ordering::Relaxed);
        self.observer.progress(read, self.total, self.parsed);
    }

    /// Imports the members of a tar. Names are only printed.
    fn tar(
        &mut self,
        stream: &mut impl Read,
        path: &Path,
        entry: &mut Imported,
    ) -> Result<(), Ended> {
        let mut tar = tar::Tar::new(&mut *stream);
        while let Some(member) = tar.next()? {
            let name = format!("member {:?}", member.name);
            if member.size > source::MEMBER_MAX {
                let (size, most) = (member.size, source::MEMBER_MAX);
                let problem = format!("{name} has {size} bytes, more than {most}: not read");
                return Err(io::Error::other(problem).into());
            }
            match member.kind {
                tar::Kind::File => self.documents(tar.content(), path, Some(&name), entry)?,
                tar::Kind::Sparse => {
                    self.damaged(
                        path,
                        Some(&name),
                        0,
                        "a file with holes, which is not read",
                        entry,
                    );
                }
                tar::Kind::Other => {
                    *entry.skipped.entry("folder, link or device".to_owned()).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Imports the documents of a file or of a tar member.
    fn documents(
        &mut self,
        stream: impl Read,
        path: &Path,
        member: Option<&str>,
        entry: &mut Imported,
    ) -> Result<(), Ended> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut documents = Documents::new(stream, &mut buffer);
        while let Some(piece) = documents.next()? {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            self.document(path, member, &piece, entry);
            if self.parsed >= self.observed + PROGRESS_BYTES {
                self.progress();
            }
            if self.pending.len() >= PENDING_MAX {
                self.flush().map_err(Ended::Dataset)?;
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    fn document(
        &mut self,
        path: &Path,
        member: Option<&str>,
        piece: &Piece<'_>,
        entry: &mut Imported,
    ) {
        self.parsed += piece.text.len() as u64;
        let kind = match piece.text {
            [] => Kind::Damaged(format!("longer than {} MiB", documents::DOCUMENT_MAX >> 20)),
            text => documents::parse(text, self.context, &mut self.relays, &mut self.pending),
        };
        let count = |kinds: &mut BTreeMap<String, u64>, kind: &str| {
            *kinds.entry(kind.to_owned()).or_default() += 1;
        };
        match kind {
            Kind::Used(kind) => count(&mut entry.documents, kind),
            Kind::Skipped(kind) => count(&mut entry.skipped, &kind),
            Kind::Partly(kind, reason) => {
                count(&mut entry.documents, kind);
                self.damaged(path, member, piece.offset, &reason, entry);
            }
            Kind::Damaged(reason) => self.damaged(path, member, piece.offset, &reason, entry),
        }
    }

    /// Counts and reports a document or a part of one that is left out.
    fn damaged(
        &mut self,
        path: &Path,
        member: Option<&str>,
        offset: u64,
        reason: &str,
        entry: &mut Imported,
    ) {
        entry.damaged += 1;
        if entry.damaged <= NAMED_MAX {
            let member = member.map(|name| format!(", {name}")).unwrap_or_default();
            let place = format!("{}{member}, byte {offset}", path.display());
            self.observer.problem(format!("{place}: {reason}; left out"));
        }
        if entry.damaged == NAMED_MAX + 1 {
            self.observer
                .problem(format!("{}: further damaged documents are only counted", path.display()));
        }
    }

    fn changes(&mut self, path: &Path, entry: &mut Imported) -> Result<(), ArchiveError> {
        let table = changes::ChangeTables::read(path)?;
        let (read, months) = (self.read.total.load(Ordering::Relaxed), table.months());
        for (index, month) in months.iter().enumerate() {
            if self.is_stopped() {
                return Ok(());
            }
            let share = entry.bytes * index as u64 / months.len() as u64;
            self.observer.progress(read + share, self.total, self.parsed);
            if table.count(month) > MONTH_ROWS_MAX as u64 {
                let problem = format!("a month has more than {MONTH_ROWS_MAX} rows");
                return Err(ArchiveError::Source { path: path.to_owned(), problem });
            }
            table.rows(month.clone(), &mut self.relays, &mut self.pending);
            self.flush()?;
        }
        entry.documents.insert("snapshot".to_owned(), table.snapshots() as u64);
        self.read.total.fetch_add(entry.bytes, Ordering::Relaxed);
        Ok(())
    }
}
