//! Files that are there whole or not at all, whenever the machine stops.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Puts `content` where a file was or is to be, readable by us alone. It is on disk, by its name, when this
/// returns; whoever reads meanwhile finds the old one or the new one.
///
/// # Errors
/// The system's answer; what was there before is untouched then, but for an error of the last step, after which
/// it is the new one that readers find and a power cut may bring back the old one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Made with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_and_private_and_what_fails_leaves_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        fs::write(&path, "old, and longer").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        replace(&path, b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);

        // A folder cannot be replaced by a file: nothing is left of the attempt.
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("by")).expect("made");
        replace(&taken, b"new").expect_err("a folder");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2);
    }
}
