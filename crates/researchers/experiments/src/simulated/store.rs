//! The result files of completed runs.

use super::RunResult;
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// A folder with a file for each run, and for other results that take long to compute. Files are replaced
/// atomically.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(crate) fn new(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder).map_err(failed("make the folder", &folder))?;
        Ok(Self { folder })
    }

    /// Opens the folder of an earlier batch, which must exist.
    pub(crate) fn existing(folder: PathBuf) -> Result<Self> {
        std::fs::read_dir(&folder).map_err(failed("read the runs in", &folder))?;
        Ok(Self { folder })
    }

    /// Reads all runs in the folder, sorted by name.
    pub(crate) fn read_runs(&self) -> Result<Vec<RunResult>> {
        let unreadable = failed("read the runs in", &self.folder);
        let entries = std::fs::read_dir(&self.folder).map_err(&unreadable)?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(&unreadable)?.file_name().to_string_lossy().into_owned();
            // A file that is being written has a temporary name without this ending.
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        let read = names.iter().map(|name| self.read::<RunResult>(name));
        Ok(read.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Reads the result of this name, if there is one.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read", &path))?,
        };
        let malformed = |error: serde_json::Error| {
            let problem = format!(
                "{}: {error}; this version did not write the file: remove it to repeat the run",
                path.display()
            );
            Error::Failed(problem)
        };
        serde_json::from_str(&text).map(Some).map_err(malformed)
    }

    /// Reads the result of a run, which must have the given conditions.
    pub(crate) fn read_run(&self, name: &str, conditions: &str) -> Result<Option<RunResult>> {
        let Some(result) = self.read::<RunResult>(name)? else { return Ok(None) };
        if result.conditions != conditions {
            return Err(Error::Failed(format!(
                "{} belongs to another batch ({}; this one is {conditions}): use another --out",
                self.path(name).display(),
                result.conditions,
            )));
        }
        Ok(Some(result))
    }

    /// Writes a result under this name.
    pub(crate) fn write(&self, name: &str, result: &impl Serialize) -> Result<()> {
        let path = self.path(name);
        let write = || files::replace(&path, &serde_json::to_vec(result)?, files::Access::Umask);
        write().map_err(failed("write (earlier runs are kept)", &path))
    }
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |source| Error::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tornet::results::Transfers;

    fn result(conditions: &str) -> RunResult {
        RunResult {
            conditions: conditions.to_owned(),
            sent_mbit_per_s: vec![1.5],
            queue_ms: 0.1,
            kernel_queue_ms: Some(0.1),
            ..RunResult::blank("ideal", 1)
        }
    }

    #[test]
    fn a_stored_run_is_read_back_and_one_of_another_batch_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().join("runs")).expect("a store");
        assert_eq!(store.read_run("a", "these").expect("no error"), None);
        store.write("a", &result("these")).expect("it can be written");
        assert_eq!(store.read_run("a", "these").expect("it is there"), Some(result("these")));
        let error = store.read_run("a", "others").expect_err("of another batch").to_string();
        assert!(error.contains("use another --out"), "{error}");
    }

    /// Medians of completed downloads alone would be too low.
    #[test]
    fn an_old_result_without_unfinished_downloads_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().to_owned()).expect("a store");
        let with_downloads = RunResult { sizes: vec![Transfers::default()], ..result("these") };
        let mut old = serde_json::to_value(with_downloads).expect("JSON");
        let size = old["sizes"][0].as_object_mut().expect("a size");
        size.remove("unfinished").expect("it was there");
        size.insert("failed".to_owned(), 3.into());
        store.write("a", &old).expect("it can be written");
        let error = store.read_run("a", "these").expect_err("too old").to_string();
        assert!(error.contains("unfinished") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.json"), "{\"conditions\":").expect("a file");
        let store = Store::new(folder.path().to_owned()).expect("a store");
        let error = store.read_run("a", "these").expect_err("cut off").to_string();
        assert!(error.contains("remove it"), "{error}");
    }
}
