//! Datasets in object storage, by S3's protocol. A command uses a local copy.
//!
//! ```text
//! s3://BUCKET/PREFIX/dataset.json                     SHA-256 of the manifest: the only object that is ever replaced by another content
//! s3://BUCKET/PREFIX/manifests/SHA256.jsonl           the manifest, as in a folder
//! s3://BUCKET/PREFIX/objects/SHA256.parquet           a file of a month or day
//! ```
//!
//! A name that contains the digest of the content cannot have another content. So an import disturbs no reader: it uploads new objects, and
//! then replaces `dataset.json` on the condition that it is still the one that the import began with (`If-Match`). If another import
//! was faster, the import is repeated on the newer dataset. An import that is killed has changed nothing.
//!
//! This module does not know what tables contain: [`Dataset`] reads and writes the copy.

mod cache;
mod changes;
mod manifest;
mod name;
mod problem;
mod storage;
mod transfers;

pub use name::RemoteName;

use super::{Checked, Dataset};
use crate::error::ArchiveError;
use cache::Cache;
use std::fs::File;
use std::path::{Path, PathBuf};
use storage::Storage;
use transfers::Received;

/// What happens while a command waits for a dataset in object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The number of files that are transferred.
    Progress(String),
    /// Another process delays this one.
    Message(String),
}

/// A dataset in object storage, and its local copies.
#[derive(Debug)]
pub(super) struct Remote {
    storage: Storage,
    cache: Cache,
}

/// The dataset of which a folder is a copy.
#[derive(Debug)]
pub(super) struct CopyOf {
    /// Its name, as a path.
    pub(super) name: PathBuf,
    /// The folder of all copies of it.
    cache: PathBuf,
    /// A shared lock: other commands do not remove the copy.
    _held: Option<File>,
}

impl CopyOf {
    /// The error of a file of the copy that is not as it was downloaded.
    pub(super) fn damaged(&self, path: &Path) -> ArchiveError {
        let (name, cache) = (self.name.display(), self.cache.display());
        let problem = format!(
            "the local copy of {name} is damaged; remove the folder {cache}, and repeat the command"
        );
        ArchiveError::Source { path: path.to_owned(), problem }
    }
}

impl Remote {
    /// Prepares the cache folder. Nothing is sent yet.
    ///
    /// # Errors
    /// The environment has no valid configuration, or the cache folder cannot be created.
    pub(super) fn connect(name: &RemoteName, cache: Option<&Path>) -> Result<Self, ArchiveError> {
        let storage = Storage::from_environment(name)?;
        let root = match cache {
            Some(folder) => folder.to_owned(),
            None => {
                name::default_cache(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
                    .ok_or_else(|| {
                        storage.error(
                            "there is no folder for the local copy: HOME is not set; use --cache"
                                .to_owned(),
                        )
                    })?
            }
        };
        let cache = Cache::create(&root.join(name.folder(storage.endpoint())), name)?;
        Ok(Self { storage, cache })
    }

    /// Opens a copy of the dataset in its current state. The copy never changes.
    pub(super) fn open(&self, notify: &mut dyn FnMut(Notice)) -> Result<Dataset, ArchiveError> {
        let Some(state) = self.storage.state()? else {
            return Err(self.storage.error(
                "not a dataset: there is no dataset.json; create one with `flashflow-archive import --to`".to_owned(),
            ));
        };
        self.cache.view(&self.storage, &state.manifest, notify)
    }

    /// Reads all objects of the dataset, and compares them with their digests.
    pub(super) fn check(
        name: &RemoteName,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Checked, ArchiveError> {
        let storage = Storage::from_environment(name)?;
        let Some(state) = storage.state()? else {
            return Err(storage.error("not a dataset: there is no dataset.json".to_owned()));
        };
        let mut checked = Checked::default();
        let files: Vec<_> = state.manifest.files.iter().map(|file| (file, None)).collect();
        storage.receive(&files, notify, &mut |file, result| {
            match result {
                Ok(Received::Complete) => {
                    checked.files += 1;
                    checked.bytes += file.bytes;
                }
                Ok(Received::Missing) => checked.problems.push(storage.missing(file)),
                Err(problem) => checked.problems.push(problem),
            }
            Ok(())
        })?;
        checked.problems.sort_by_key(ToString::to_string);
        Ok(checked)
    }
}

#[cfg(test)]
mod tests;
