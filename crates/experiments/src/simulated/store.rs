//! The files of runs that are over.

use super::Played;
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// A folder with a file for each run, and for whatever else took long. A file is there whole or not at all.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(crate) fn new(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder).map_err(failed("make the folder", &folder))?;
        Ok(Self { folder })
    }

    /// One that somebody has written.
    pub(crate) fn existing(folder: PathBuf) -> Result<Self> {
        std::fs::read_dir(&folder).map_err(failed("read the runs in", &folder))?;
        Ok(Self { folder })
    }

    /// All runs that are there, by name.
    pub(crate) fn read_runs(&self) -> Result<Vec<Played>> {
        let unreadable = failed("read the runs in", &self.folder);
        let entries = std::fs::read_dir(&self.folder).map_err(&unreadable)?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(&unreadable)?.file_name().to_string_lossy().into_owned();
            // What is being written has another name until it is whole.
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        let read = names.iter().map(|name| self.read::<Played>(name));
        Ok(read.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The file of a name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// What is there under a name.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read", &path))?,
        };
        let malformed = |error: serde_json::Error| {
            let problem = format!(
                "{}: {error}; it is not what this program wrote: remove it, and the run is played again",
                path.display()
            );
            Error::Failed(problem)
        };
        serde_json::from_str(&text).map(Some).map_err(malformed)
    }

    /// Reads a run, which must have been played under these conditions.
    pub(crate) fn read_run(&self, name: &str, conditions: &str) -> Result<Option<Played>> {
        let Some(played) = self.read::<Played>(name)? else { return Ok(None) };
        if played.conditions != conditions {
            return Err(Error::Failed(format!(
                "{} is of another batch ({}; this one is {conditions}): take another --out",
                self.path(name).display(),
                played.conditions,
            )));
        }
        Ok(Some(played))
    }

    /// Puts it there.
    pub(crate) fn write(&self, name: &str, what: &impl Serialize) -> Result<()> {
        let path = self.path(name);
        let write = || files::replace(&path, &serde_json::to_vec(what)?, files::Access::Umask);
        // On a full disk, for one, nothing of this run is there, and all that were over before are.
        write().map_err(failed("write (the runs before it are kept)", &path))
    }
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |source| Error::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tornet::results::Transfers;

    fn played(conditions: &str) -> Played {
        Played {
            conditions: conditions.to_owned(),
            sent_mbit_per_s: vec![1.5],
            queue_ms: 0.1,
            kernel_queue_ms: Some(0.1),
            ..Played::blank("ideal", 1)
        }
    }

    #[test]
    fn a_run_that_is_there_comes_back_as_it_was_and_one_of_another_batch_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().join("runs")).expect("a store");
        assert_eq!(store.read_run("a", "these").expect("no error"), None);
        store.write("a", &played("these")).expect("it can be written");
        assert_eq!(store.read_run("a", "these").expect("it is there"), Some(played("these")));
        let error = store.read_run("a", "others").expect_err("of another batch").to_string();
        assert!(error.contains("take another --out"), "{error}");
    }

    /// Its medians would be of the completed downloads.
    #[test]
    fn a_run_that_does_not_tell_what_was_under_way_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().to_owned()).expect("a store");
        let with_downloads = Played { sizes: vec![Transfers::default()], ..played("these") };
        let mut of_before = serde_json::to_value(with_downloads).expect("JSON");
        let size = of_before["sizes"][0].as_object_mut().expect("a size");
        size.remove("unfinished").expect("it was there");
        size.insert("failed".to_owned(), 3.into());
        store.write("a", &of_before).expect("it can be written");
        let error = store.read_run("a", "these").expect_err("of before").to_string();
        assert!(error.contains("unfinished") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn what_is_cut_off_is_told_and_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.json"), "{\"conditions\":").expect("a file");
        let store = Store::new(folder.path().to_owned()).expect("a store");
        let error = store.read_run("a", "these").expect_err("cut off").to_string();
        assert!(error.contains("remove it"), "{error}");
    }
}
