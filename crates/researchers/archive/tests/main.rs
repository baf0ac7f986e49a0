//! Imports and queries, mostly of real data, if there is any in `../shared/data`.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is their report")]

mod common;

/// A file or folder of real data; without it, the test is skipped.
macro_rules! real {
    ($name:expr) => {{
        let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../../../shared/data")
            .join($name);
        if !path.exists() {
            skip::this_test!("there is no {}", path.display());
        }
        path
    }};
}

mod damaged_files;
mod real_archives;
mod real_series;
mod real_sources;
mod same_rows;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn assert_near(found: f64, wanted: f64, by: f64) {
    assert!((found - wanted).abs() <= by, "{found} is not {wanted}");
}
