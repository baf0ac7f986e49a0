//! The coordinator's kill switch: a file in its folder of bandwidth files, so that a restart does not undo it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The stop file in this folder.
#[must_use]
pub fn path_in(out: &Path) -> PathBuf {
    out.join("stop")
}

/// Whether measurements are permitted.
///
/// # Errors
/// The stop file is there, or whether it is there cannot be found out.
pub fn check(out: &Path) -> Result<(), String> {
    let path = path_in(out);
    let file = path.display();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot read the stop file {file}: {error}")),
        Ok(_) => Err(format!(
            "all measurements are stopped: {file} exists. `flashflow coordinator resume` removes it"
        )),
    }
}

/// Creates the stop file. Returns its path.
///
/// The folder belongs to the coordinator's user, and root may run this: no link is followed.
///
/// # Errors
/// The I/O error.
pub fn create(out: &Path) -> io::Result<PathBuf> {
    let path = path_in(out);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            let text = "written by `flashflow coordinator stop-all`; removed by `flashflow coordinator resume`\n";
            // Its existence is what counts, also on a full disk.
            let _ = file.write_all(text.as_bytes());
        }
        // Anything of that name stops measurements.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(path)
}

/// Removes the stop file. Returns whether there was one.
///
/// # Errors
/// The I/O error.
pub fn remove(out: &Path) -> io::Result<bool> {
    match fs::remove_file(path_in(out)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
