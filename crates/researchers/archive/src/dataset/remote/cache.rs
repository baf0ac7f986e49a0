//! The local copies of one dataset.
//!
//! ```text
//! FOLDER/objects/SHA256.parquet               downloaded or uploaded files
//! FOLDER/views/SHA256-OF-MANIFEST/            a dataset, whose files are hard links to objects
//! FOLDER/imports/                             the dataset that an import changes, in a temporary folder
//! FOLDER/cache.lock                           held while objects and views are added or removed
//! FOLDER/import.lock                          held by an import from beginning to end
//! ```
//!
//! A view never changes, so a query is not disturbed by newer states. Each command holds a shared lock on the manifest of its view; views that
//! no process holds are removed when there is a newer one.

use super::super::digests::FileLine;
use super::super::writer::lock;
use super::super::{Dataset, MANIFEST};
use super::manifest::Manifest;
use super::name::RemoteName;
use super::storage::Storage;
use super::transfers::Received;
use super::{CopyOf, Notice};
use crate::error::ArchiveError;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The local copies of one dataset.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    name: PathBuf,
}

/// A copy that an import changes. It is removed when this value is dropped.
pub(super) struct WorkingCopy {
    pub(super) dataset: Dataset,
    /// The digests of those of its files that are in the storage.
    pub(super) stored: BTreeSet<String>,
    _folder: TempDir,
}

impl Cache {
    /// Creates the folders.
    pub(super) fn create(folder: &Path, name: &RemoteName) -> Result<Self, ArchiveError> {
        // A view must not depend on the folder in which the command was started.
        let folder = std::path::absolute(folder).map_err(ArchiveError::file("find", folder))?;
        for below in ["objects", "views", "imports"] {
            let path = folder.join(below);
            fs::create_dir_all(&path)
                .map_err(ArchiveError::file("make the cache folder", &path))?;
        }
        Ok(Self { folder, name: PathBuf::from(name.to_string()) })
    }

    fn object(&self, file: &FileLine) -> PathBuf {
        self.folder.join("objects").join(format!("{}.parquet", file.sha256))
    }

    fn copy_of(&self, held: Option<File>) -> Option<Arc<CopyOf>> {
        Some(Arc::new(CopyOf { name: self.name.clone(), cache: self.folder.clone(), _held: held }))
    }

    fn locked(
        &self,
        name: &str,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<Option<File>, ArchiveError> {
        let path = self.folder.join(name);
        let file = File::options().append(true).create(true).open(&path);
        let file = file.map_err(ArchiveError::file("write", &path))?;
        Ok(lock(&file, &path, waits)?.then_some(file))
    }

    /// Waits until no other import of this user changes the dataset, unless `waits` returns false.
    pub(super) fn lock_imports(
        &self,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<Option<File>, ArchiveError> {
        self.locked("import.lock", waits)
    }

    fn lock_objects(&self) -> Result<Option<File>, ArchiveError> {
        self.locked("cache.lock", &mut || true)
    }

    /// Downloads the files that the cache does not have. Returns those that the storage does not have, either.
    fn fetch<'a>(
        &self,
        storage: &Storage,
        manifest: &'a Manifest,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Vec<&'a FileLine>, ArchiveError> {
        let has = |file: &FileLine| {
            fs::metadata(self.object(file)).is_ok_and(|found| found.len() == file.bytes)
        };
        let cached = manifest
            .files
            .iter()
            .filter(|file| has(file))
            .map(|file| file.sha256.clone())
            .collect();
        let wanted = manifest.beyond(&cached);
        let paths: Vec<PathBuf> = wanted.iter().map(|file| self.object(file)).collect();
        let wanted: Vec<_> = wanted
            .into_iter()
            .zip(&paths)
            .map(|(file, path)| (file, Some(path.as_path())))
            .collect();
        let mut missing = BTreeSet::new();
        storage.receive(&wanted, notify, &mut |file, received| {
            if received? == Received::Missing {
                missing.insert(file.sha256.clone());
            }
            Ok(())
        })?;
        Ok(manifest.files.iter().filter(|file| missing.contains(&file.sha256)).collect())
    }

    /// Fills a new folder with the manifest and files of a dataset.
    fn fill(
        &self,
        folder: &Path,
        manifest: &Manifest,
        stored: &BTreeSet<String>,
    ) -> Result<(), ArchiveError> {
        for file in manifest.files.iter().filter(|file| stored.contains(&file.sha256)) {
            let (object, path) = (self.object(file), folder.join(&file.file));
            let part = files::folder_of(&path);
            fs::create_dir_all(part).map_err(ArchiveError::file("make", part))?;
            link(&object, &path).map_err(ArchiveError::file("write", &path))?;
        }
        let path = folder.join(MANIFEST);
        fs::write(&path, &manifest.text).map_err(ArchiveError::file("write", &path))
    }

    /// A copy of this state, which is downloaded as far as the cache does not have it.
    pub(super) fn view(
        &self,
        storage: &Storage,
        manifest: &Manifest,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Dataset, ArchiveError> {
        let _lock = self.lock_objects()?;
        let views = self.folder.join("views");
        let folder = views.join(manifest.sha256());
        let path = folder.join(MANIFEST);
        if fs::read(&path).ok().as_ref() != Some(&manifest.text) {
            if let Some(file) = self.fetch(storage, manifest, notify)?.first() {
                return Err(storage.missing(file));
            }
            let new = tempfile::Builder::new().prefix(".new").tempdir_in(&views);
            let new = new.map_err(ArchiveError::file("write", &views))?;
            self.fill(new.path(), manifest, &manifest.digests())?;
            // What is there has another manifest than its name says.
            remove(&folder)?;
            fs::rename(new.path(), &folder).map_err(ArchiveError::file("write", &folder))?;
        }
        let held = File::open(&path).and_then(|held| held.lock_shared().map(|()| held));
        let held = held.map_err(ArchiveError::file("lock", &path))?;
        self.clean(manifest)?;
        Ok(Dataset { folder, copy_of: self.copy_of(Some(held)) })
    }

    /// A copy of this state that can be changed. With `is_again`, files may be missing in the storage.
    pub(super) fn working_copy(
        &self,
        storage: &Storage,
        manifest: &Manifest,
        is_again: bool,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<WorkingCopy, ArchiveError> {
        let _lock = self.lock_objects()?;
        let missing = self.fetch(storage, manifest, notify)?;
        if let (Some(file), false) = (missing.first(), is_again) {
            return Err(storage.missing(file));
        }
        let mut stored = manifest.digests();
        for file in missing {
            stored.remove(&file.sha256);
        }
        let imports = self.folder.join("imports");
        // The lock of imports is held, so what is there was left by an import that was killed.
        for entry in entries(&imports)? {
            remove(&entry)?;
        }
        let folder =
            tempfile::tempdir_in(&imports).map_err(ArchiveError::file("write", &imports))?;
        self.fill(folder.path(), manifest, &stored)?;
        let dataset = Dataset { folder: folder.path().to_owned(), copy_of: self.copy_of(None) };
        Ok(WorkingCopy { dataset, stored, _folder: folder })
    }

    /// Keeps uploaded files, so that they need not be downloaded.
    pub(super) fn keep(&self, copy: &WorkingCopy, files: &[&FileLine]) -> Result<(), ArchiveError> {
        let _lock = self.lock_objects()?;
        for file in files {
            let object = self.object(file);
            if !object.exists() {
                link(&copy.dataset.folder.join(&file.file), &object)
                    .map_err(ArchiveError::file("write", &object))?;
            }
        }
        Ok(())
    }

    /// Removes older views that no process uses, and objects that neither this state nor another copy has.
    fn clean(&self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let current = manifest.sha256();
        for view in entries(&self.folder.join("views"))? {
            let is_current = view.file_name().is_some_and(|name| name == current.as_str());
            let is_held =
                || File::open(view.join(MANIFEST)).is_ok_and(|file| file.try_lock().is_err());
            if !is_current && !is_held() {
                remove(&view)?;
            }
        }
        let known: BTreeSet<String> =
            manifest.digests().into_iter().map(|sha256| format!("{sha256}.parquet")).collect();
        for object in entries(&self.folder.join("objects"))? {
            let is_known = object
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| known.contains(name));
            let is_linked = || fs::metadata(&object).is_ok_and(|found| found.nlink() > 1);
            if !is_known && !is_linked() {
                fs::remove_file(&object).map_err(ArchiveError::file("remove", &object))?;
            }
        }
        Ok(())
    }
}

/// A hard link, or a copy if the file system has none.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(|_| ()))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let entries =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(ArchiveError::file("read", folder))
}

/// Removes a folder, if it exists.
fn remove(folder: &Path) -> Result<(), ArchiveError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ArchiveError::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}
