//! Files that have no name until they are complete (`O_TMPFILE` of Linux).

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// The names of a process's open files, by which they can be linked.
const OPEN_FILES: &str = "/proc/self/fd";

/// Makes a file of this folder with these permissions, less the umask; `None` if the file system has no such files, or they
/// could not be linked.
pub(crate) fn make(folder: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if !Path::new(OPEN_FILES).is_dir() {
        return None;
    }
    open(folder, flags, Mode::from_raw_mode(mode)).ok().map(File::from)
}

/// Gives such a file a name, which must not exist.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let name = format!("{OPEN_FILES}/{}", file.as_raw_fd());
    Ok(linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
