//! Putting pages and data into files.

use crate::Report;
use files::Access;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file could not be made. Whatever was there before is untouched.
    #[error("machine: cannot write the report `{}`: {source}. {}", .path.display(), advice(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Report {
    /// Writes [`to_html`](Self::to_html) to `path`. Readers find the old file or the new one,
    /// whole, whatever happens in between.
    ///
    /// # Errors
    ///
    /// If the file can't be made there; the message names it and says what to do.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        write(path.as_ref(), self.to_html().as_bytes())
    }
}

/// Puts `content` where a file was or is to be, whole.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    files::replace(path, content, Access::Umask)
        .map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "Create its folder first (`mkdir -p`), or name another file",
        ErrorKind::PermissionDenied => "Name a file in a folder that you may write to",
        ErrorKind::IsADirectory => "Name a file in that folder, such as `report.html` in it",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "A part of its path is a file: name another one"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "Free some space (a report takes less than 1 MB), or name a file on another disk"
        }
        ErrorKind::ReadOnlyFilesystem => "Name a file on a disk that can be written to",
        _ => "Name another file",
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;

    #[test]
    fn a_report_replaces_the_one_before_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        std::fs::write(&path, "old").unwrap();
        let report = testing::report(Vec::new());
        report.write_html(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), report.to_html());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_path_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let report = testing::report(Vec::new());
        let message = |path| report.write_html(path).unwrap_err().to_string();

        let missing = folder.path().join("nowhere/report.html");
        let text = message(missing.clone());
        assert!(text.contains(&missing.display().to_string()), "{text}");
        assert!(text.contains("mkdir -p"), "{text}");

        let text = message(folder.path().to_owned());
        assert!(text.contains("Name a file in that folder"), "{text}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_a_report_if_the_umask_lets_them() {
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
