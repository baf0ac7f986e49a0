//! Copies a store that is in use.

use crate::error::StoreError;
use crate::open::Reader;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

impl Reader {
    /// Writes a copy of the current state of the store, even while others write to it. The name appears only once the
    /// whole copy is on the disk. Returns its size in bytes.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the target exists, and system errors.
    pub fn back_up(&self, target: &Path) -> Result<u64, StoreError> {
        let failed =
            |action| move |source| StoreError::File { action, path: target.to_owned(), source };
        if target.symlink_metadata().is_ok() {
            return Err(StoreError::Exists { path: target.to_owned() });
        }
        let folder =
            target.parent().filter(|parent| *parent != OsStr::new("")).unwrap_or(Path::new("."));
        // An unfinished copy is always removed with its folder.
        let room = tempfile::Builder::new().prefix(".backup-").tempdir_in(folder);
        let room = room.map_err(failed("make a folder next to"))?;
        let unfinished = room.path().join("copy");
        let name = unfinished.to_string_lossy();
        // Before it has any content, since SQLite would let everybody read it: it names the relays that are being measured.
        let mut private = File::options();
        private.write(true).create_new(true).mode(0o600);
        private.open(&unfinished).map_err(failed("make"))?;
        // One consistent state of the store, and pages without gaps.
        let copied = self.db.execute("VACUUM INTO ?1", [&*name]);
        copied.map_err(|source| StoreError::of(target, source))?;
        let save = |path: &Path| File::open(path).and_then(|file| file.sync_all());
        save(&unfinished).map_err(failed("save"))?;
        // A link fails if its name exists; a rename would replace it.
        fs::hard_link(&unfinished, target).map_err(failed("name"))?;
        save(folder).map_err(failed("save the folder of"))?;
        let size = fs::metadata(target).map_err(failed("look at"))?.len();
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{NOW, Scratch, closed, relay};
    use crate::{Entry, Reader, Store, StoreError};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_backup_is_a_store_with_all_that_was_written_before_it() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let write = |store: &mut Store, numbers: std::ops::Range<u8>| {
            for number in numbers {
                let ended = Entry::Finished(Box::new(closed(relay(number), NOW, 1, 5_000_000)));
                store.write([&ended]).expect("room");
            }
        };
        write(&mut store, 0..20);
        let target = scratch.path("backup.db");
        // Another process, while this one has the store open.
        let reader = Reader::open(&scratch.store).expect("there");
        let size = reader.back_up(&target).expect("room");
        write(&mut store, 20..30);
        let metadata = std::fs::metadata(&target).expect("there");
        assert_eq!((size, metadata.mode() & 0o777), (metadata.len(), 0o600));
        let error = reader.back_up(&target).expect_err("taken");
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        let copy = Store::open(&target).expect("a store");
        copy.check_all().expect("sound");
        assert_eq!(copy.period(NOW).expect("read").len(), 20);
        assert_eq!(store.period(NOW).expect("read").len(), 30);
        let names = std::fs::read_dir(scratch.folder.path()).expect("listed");
        let names =
            names.map(|name| name.expect("listed").file_name().into_string().expect("text"));
        assert!(names.filter(|name| name.starts_with(".backup-")).count() == 0, "nothing is left");
    }
}
