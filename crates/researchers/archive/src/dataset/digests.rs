//! SHA-256 of the files of a dataset, in its manifest.
//!
//! A writer notes the digest of a file before it puts the file in place, and once more afterwards. So the content of a file is one of its
//! last two lines, also after a crash, and only the last one if the writer completed.

use super::{Dataset, MANIFEST};
use crate::error::ArchiveError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The line of a file in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileLine {
    /// Path below the dataset's folder.
    pub(super) file: String,
    pub(super) bytes: u64,
    /// In hex.
    pub(super) sha256: String,
}

impl FileLine {
    /// The line of a file with this content, which it may have under another name so far.
    pub(super) fn new(dataset: &Dataset, path: &Path, content: &Path) -> io::Result<Self> {
        let mut file = File::open(content)?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 18];
        loop {
            let len = file.read(&mut buffer)?;
            if len == 0 {
                break;
            }
            hash.update(&buffer[..len]);
            bytes += len as u64;
        }
        let name = path.strip_prefix(&dataset.folder).unwrap_or(path);
        let file = name.to_string_lossy().into_owned();
        Ok(Self { file, bytes, sha256: hex::encode(hash.finalize()) })
    }
}

/// The last two states of each file. `None` is a file that does not exist yet.
#[derive(Debug, Default)]
pub(super) struct Digests(BTreeMap<String, [Option<FileLine>; 2]>);

impl Digests {
    pub(super) fn add(&mut self, line: FileLine) {
        let states = self.0.entry(line.file.clone()).or_default();
        states.rotate_left(1);
        states[1] = Some(line);
    }

    /// The last state of each file.
    pub(super) fn last(&self) -> impl Iterator<Item = &FileLine> {
        self.0.values().filter_map(|states| states[1].as_ref())
    }

    /// Checks the content of a file.
    fn check(&self, dataset: &Dataset, path: &Path) -> Result<u64, ArchiveError> {
        let found = match FileLine::new(dataset, path, path) {
            Ok(line) => Some(line),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(ArchiveError::file("read", path)(error)),
        };
        let name = path.strip_prefix(&dataset.folder).unwrap_or(path).to_string_lossy();
        if let Some(copy) = &dataset.copy_of {
            // Only the files of the manifest were downloaded, each with the right content.
            return match (self.0.get(&*name), found) {
                (Some(states), Some(line)) if states.contains(&Some(line.clone())) => {
                    Ok(line.bytes)
                }
                _ => Err(copy.damaged(path)),
            };
        }
        let Some(states) = self.0.get(&*name) else {
            let problem = match self.0.is_empty() {
                true => "the dataset is of an earlier version, without digests of its files; import its sources into a new dataset".to_owned(),
                false => format!("no import wrote this file: {MANIFEST} does not have it; remove it"),
            };
            return Err(ArchiveError::Source { path: path.to_owned(), problem });
        };
        match (states.contains(&found), found) {
            (true, found) => Ok(found.map_or(0, |line| line.bytes)),
            (false, Some(_)) => Err(ArchiveError::damaged(path)(format!(
                "its SHA-256 is not that in {MANIFEST}"
            ))),
            (false, None) => Err(ArchiveError::Source {
                path: path.to_owned(),
                problem: "this file of the dataset is missing; import the sources of its month again with --again".to_owned(),
            }),
        }
    }
}

/// The result of [`Dataset::check`].
#[derive(Debug, Default)]
pub struct Checked {
    /// Number of files.
    pub files: usize,
    /// The sum of their sizes.
    pub bytes: u64,
    /// Files that are damaged, missing or unknown.
    pub problems: Vec<ArchiveError>,
}

impl Dataset {
    pub(super) fn digests(&self) -> Result<Digests, ArchiveError> {
        let mut digests = Digests::default();
        self.lines(|line| digests.add(line))?;
        Ok(digests)
    }

    /// SHA-256 of the names and digests of all files, in hex: the identity of the dataset's content, for reports.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn digest(&self) -> Result<String, ArchiveError> {
        let mut hash = Sha256::new();
        for line in self.digests()?.last() {
            hash.update(format!("{} {}\n", line.file, line.sha256));
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// Compares all files with the digests in the manifest.
    ///
    /// # Errors
    /// The manifest or a folder cannot be read.
    pub fn check(&self, threads: usize) -> Result<Checked, ArchiveError> {
        let digests = self.digests()?;
        let mut paths: Vec<PathBuf> = digests.0.keys().map(|name| self.folder.join(name)).collect();
        for (table, ..) in crate::rows::tables() {
            paths.extend(self.parts(table)?.into_iter().map(|part| part.1));
        }
        paths.sort();
        paths.dedup();
        let next = AtomicUsize::new(0);
        let checked = Mutex::new(Checked::default());
        thread::scope(|scope| {
            for _ in 0..threads.clamp(1, paths.len().max(1)) {
                scope.spawn(|| {
                    while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let found = self.check_file(&digests, path);
                        let mut checked =
                            checked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        match found {
                            Ok(bytes) => {
                                checked.files += usize::from(bytes > 0);
                                checked.bytes += bytes;
                            }
                            Err(problem) => checked.problems.push(problem),
                        }
                    }
                });
            }
        });
        let mut checked = checked.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        checked.problems.sort_by_key(ToString::to_string);
        Ok(checked)
    }

    /// Like [`check`](Self::check), but fails with the first problem.
    ///
    /// # Errors
    /// A file is damaged, missing or unknown, or cannot be read.
    pub fn verify(&self, threads: usize) -> Result<(), ArchiveError> {
        self.check(threads)?.problems.into_iter().next().map_or(Ok(()), Err)
    }

    /// Checks one file, and returns its size.
    pub(super) fn check_file(&self, digests: &Digests, path: &Path) -> Result<u64, ArchiveError> {
        // An import may have replaced the file after the manifest was read.
        digests.check(self, path).or_else(|_| self.digests()?.check(self, path))
    }
}
