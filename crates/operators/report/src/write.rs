//! Writes pages and data to files.

use crate::Report;
use files::Access;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file could not be written. An existing file is unchanged.
    #[error("machine: cannot write the report `{}`: {source}. {}", .path.display(), advice(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

impl Report {
    /// Writes [`to_html`](Self::to_html) to `path`, and replaces an existing file atomically.
    ///
    /// # Errors
    ///
    /// The file cannot be written. The message names it and the remedy.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        write(path.as_ref(), self.to_html().as_bytes())
    }
}

/// Writes a file atomically.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    files::replace(path, content, Access::Umask)
        .map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "Create its folder first (`mkdir -p`), or choose another file",
        ErrorKind::PermissionDenied => "Choose a file in a folder that you may write to",
        ErrorKind::IsADirectory => "Choose a file in that folder, such as `report.html`",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "A part of its path is a file: choose another path"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "Free some space (a report takes less than 1 MB), or choose a file on another disk"
        }
        ErrorKind::ReadOnlyFilesystem => "Choose a file on a writable disk",
        _ => "Choose another file",
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;

    #[test]
    fn a_report_replaces_an_earlier_one_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        std::fs::write(&path, "old").unwrap();
        let report = testing::report(Vec::new());
        report.write_html(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), report.to_html());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_path_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let report = testing::report(Vec::new());
        let message = |path| report.write_html(path).unwrap_err().to_string();

        let missing = folder.path().join("nowhere/report.html");
        let text = message(missing.clone());
        assert!(text.contains(&missing.display().to_string()), "{text}");
        assert!(text.contains("mkdir -p"), "{text}");

        let text = message(folder.path().to_owned());
        assert!(text.contains("Choose a file in that folder"), "{text}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_of_a_report_follow_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [report, plain] = ["report.html", "plain"].map(|name| folder.path().join(name));
        testing::report(Vec::new()).write_html(&report).unwrap();
        std::fs::write(&plain, "").unwrap();
        let [report, plain] =
            [report, plain].map(|path| path.metadata().unwrap().permissions().mode());
        assert_eq!(report, plain);
    }
}
