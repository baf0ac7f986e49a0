//! The coordinator's kill switch: a file in its folder of bandwidth files, so that a restart does not undo it.

use std::fs;
use std::io::{self, ErrorKind};
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

/// Creates the stop file, and the folder if there is none. Returns its path.
///
/// # Errors
/// The I/O error.
pub fn create(out: &Path) -> io::Result<PathBuf> {
    let path = path_in(out);
    fs::create_dir_all(out)?;
    fs::write(
        &path,
        "written by `flashflow coordinator stop-all`; removed by `flashflow coordinator resume`\n",
    )?;
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
