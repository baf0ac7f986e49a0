//! Imports for tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is their report")]

use archive::dataset::Dataset;
use archive::import::{ImportOptions, ImportReport, Observer, import};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Collects the problems of an import.
#[derive(Default)]
pub(crate) struct Problems(pub(crate) Vec<String>);

impl Observer for Problems {
    fn progress(&mut self, _: u64, _: u64, _: u64) {}

    fn problem(&mut self, message: String) {
        self.0.push(message);
    }
}

/// Imports sources into the dataset of this folder, and returns the problems as well.
pub(crate) fn imported(sources: &[PathBuf], folder: &Path) -> (Dataset, ImportReport, Vec<String>) {
    let dataset = Dataset::create(folder).unwrap();
    let mut problems = Problems::default();
    let stop = AtomicBool::new(false);
    let report =
        import(&dataset, sources, &ImportOptions::default(), &stop, &mut problems).unwrap();
    (dataset, report, problems.0)
}
