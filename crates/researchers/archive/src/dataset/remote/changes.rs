//! Changes of a dataset in object storage: all or nothing, and none is lost.

use super::manifest::Manifest;
use super::{Notice, Remote};
use crate::dataset::{ChangeOptions, Dataset, MANIFEST};
use crate::error::ArchiveError;
use std::fs;
use std::sync::atomic::Ordering;

/// Number of attempts to change a dataset that others change at the same time.
const ATTEMPTS: usize = 5;

impl Remote {
    /// Changes a copy of the dataset, uploads what is new, and makes it the current state. See [`Location::change`](crate::dataset::Location).
    pub(in crate::dataset) fn change<T>(
        &self,
        options: ChangeOptions<'_>,
        notify: &mut dyn FnMut(Notice),
        change: &mut dyn FnMut(&Dataset) -> Result<T, ArchiveError>,
    ) -> Result<Option<T>, ArchiveError> {
        let name = &self.storage.name;
        let mut is_told = false;
        let lock = self.cache.lock_imports(&mut || {
            if !std::mem::replace(&mut is_told, true) {
                notify(Notice::Message(format!(
                    "{name}: another import is changing the dataset; waiting for its end"
                )));
            }
            !options.stop.load(Ordering::Relaxed)
        })?;
        let Some(_lock) = lock else { return Ok(None) };
        for _ in 0..ATTEMPTS {
            let base = self.storage.state()?;
            let before = base.as_ref().map(|state| state.manifest.clone()).unwrap_or_default();
            let copy = self.cache.working_copy(&self.storage, &before, options.is_again, notify)?;
            let changed = change(&copy.dataset)?;
            let path = copy.dataset.folder().join(MANIFEST);
            let text = fs::read(&path).map_err(ArchiveError::file("read", &path))?;
            let manifest = Manifest::parse(text).map_err(|problem| self.storage.error(problem))?;
            if manifest.text == before.text {
                return Ok(Some(changed));
            }
            let new = manifest.beyond(&copy.stored);
            // With --again: the import did not write all of the missing files.
            if let Some(file) =
                new.iter().find(|file| !copy.dataset.folder().join(&file.file).exists())
            {
                return Err(self.storage.missing(file));
            }
            self.storage.send(copy.dataset.folder(), &new, notify)?;
            if self.storage.publish(&manifest, base.as_ref())? {
                // The dataset is changed. What cannot be kept is downloaded by the next command.
                let _ = self.cache.keep(&copy, &new);
                return Ok(Some(changed));
            }
            notify(Notice::Message(format!(
                "{name}: another import changed the dataset meanwhile; importing again into its newer state"
            )));
        }
        Err(self.storage.error(format!(
            "other imports changed the dataset during each of {ATTEMPTS} attempts: nothing of this import is in the dataset; repeat it when they have ended"
        )))
    }
}
