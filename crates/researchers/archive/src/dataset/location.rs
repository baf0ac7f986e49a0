//! Where a dataset is: a folder, or object storage.

use super::remote::{Notice, Remote, RemoteName};
use super::{Checked, Dataset};
use crate::error::ArchiveError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Where a dataset is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A folder.
    Folder(PathBuf),
    /// A bucket of object storage.
    Bucket(RemoteName),
}

/// How to change a dataset.
#[derive(Clone, Copy, Debug)]
pub struct ChangeOptions<'a> {
    /// The folder for copies of datasets in object storage. By default the user's cache folder.
    pub cache: Option<&'a Path>,
    /// Files of the dataset may be missing, because the change writes them again.
    pub is_again: bool,
    /// Set if the change is to end.
    pub stop: &'a AtomicBool,
}

impl Location {
    /// Reads the name of a dataset: a path, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// The name is a URL, but not of this form.
    pub fn new(path: PathBuf) -> Result<Self, String> {
        let Some((scheme, rest)) = path.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Self::Folder(path));
        };
        match scheme {
            "s3" => Ok(Self::Bucket(RemoteName::new(rest)?)),
            other if other.contains('/') => Ok(Self::Folder(path)),
            other => {
                Err(format!("`{other}://` is not supported: use a folder, or s3://BUCKET/PREFIX"))
            }
        }
    }

    /// Opens the dataset. One in object storage is first copied, as far as the cache does not have it.
    ///
    /// # Errors
    /// There is no dataset, or it cannot be read.
    pub fn open(
        &self,
        cache: Option<&Path>,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Dataset, ArchiveError> {
        match self {
            Self::Folder(folder) => Dataset::open(folder),
            Self::Bucket(name) => Remote::connect(name, cache)?.open(notify),
        }
    }

    /// Changes the dataset, which is created if there is none. In object storage readers see all changes at once, when `change` has
    /// returned. If another process has changed the dataset meanwhile, `change` is called again.
    ///
    /// Returns nothing if `stop` was set before the dataset could be changed.
    ///
    /// # Errors
    /// That of `change`, or the dataset cannot be read or written.
    pub fn change<T>(
        &self,
        options: ChangeOptions<'_>,
        notify: &mut dyn FnMut(Notice),
        change: &mut dyn FnMut(&Dataset) -> Result<T, ArchiveError>,
    ) -> Result<Option<T>, ArchiveError> {
        match self {
            Self::Folder(folder) => change(&Dataset::create(folder)?).map(Some),
            Self::Bucket(name) => {
                Remote::connect(name, options.cache)?.change(options, notify, change)
            }
        }
    }

    /// Compares all files of the dataset with their digests. In object storage these are the stored objects, not their copies.
    ///
    /// # Errors
    /// There is no dataset, or its manifest cannot be read.
    pub fn check(
        &self,
        threads: usize,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Checked, ArchiveError> {
        match self {
            Self::Folder(folder) => Dataset::open(folder)?.check(threads),
            Self::Bucket(name) => Remote::check(name, notify),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Bucket(name) => name.fmt(f),
        }
    }
}
