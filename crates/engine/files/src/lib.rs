//! Replaces files atomically.
//!
//! A reader sees the previous content or the new one, never a part, even after a crash: the content
//! is written to a temporary file in the same folder, synced to disk, and renamed. Where the file
//! system permits it, the temporary file gets a name only for the renaming: a process that is
//! killed while it writes leaves nothing.
//!
//! [`replace`] is for outputs that a user names. A FIFO, a device or a symbolic link at that path
//! is there on purpose, so the content is written through it; a regular file never takes its place.
//! [`replace_entry`] is for names in a folder that belongs to the program, where an attacker may
//! have planted a link: whatever has the name is replaced. [`create`] replaces nothing.

mod unnamed;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its owner (mode 0600). For secrets, which are not written into a FIFO or a device.
    Owner,
    /// As the umask permits (mode 0666 without the bits of the umask).
    Umask,
    /// Everybody (mode 0644), whatever the umask: for files that other users' programs read.
    Everyone,
}

/// Limit on symbolic links: the kernel's.
const LINKS_MAX: usize = 40;

/// Writes `content` to the file that a user named: through a symbolic link to its target, into a
/// FIFO or a device, or else atomically over the previous file. The target of a dangling link is
/// created.
///
/// # Errors
/// The I/O error. The previous regular file is then unchanged, unless the last step has failed,
/// syncing the folder: readers then see the new file, but a power failure may restore the previous
/// one. [`ErrorKind::IsADirectory`] for a folder, [`ErrorKind::InvalidInput`] for a secret that
/// would be written into a FIFO or a device.
pub fn replace(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    replace_with(path, access, |file| file.write_all(content))
}

/// As [`replace`], with the content that `write` writes piece by piece. If it fails, the previous
/// regular file is unchanged.
///
/// # Errors
/// Those of `write`, and as for [`replace`].
pub fn replace_with<T, E: From<io::Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    if is_special(path)? {
        if access == Access::Owner {
            let problem = "it is a FIFO or a device, into which no secret is written";
            return Err(io::Error::new(ErrorKind::InvalidInput, problem).into());
        }
        return write(&mut OpenOptions::new().append(true).open(path)?);
    }
    replace_entry_with(&target(path)?, access, write)
}

/// Writes a file with this content at a name, and replaces anything but a folder there. Links are
/// not followed.
///
/// # Errors
/// As for [`replace`].
pub fn replace_entry(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    replace_entry_with(path, access, |file| file.write_all(content))
}

fn replace_entry_with<T, E: From<io::Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(io::Error::from(ErrorKind::IsADirectory).into());
    }
    let (saved, written) = saved(path, access, write)?;
    saved.persist(path).map_err(|error| error.error)?;
    save_folder(path)?;
    Ok(written)
}

/// Creates a file with this content, through symbolic links. It appears under its name only when it
/// is complete.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if the name exists, which is then unchanged; else the I/O error.
pub fn create(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let path = target(path)?;
    let (saved, ()) = saved(&path, access, |file| file.write_all(content))?;
    saved.persist_noclobber(&path).map_err(|error| error.error)?;
    save_folder(&path)
}

/// The folder of a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Whether the path leads to something other than a replaceable file. The descriptors of processes,
/// such as `/dev/stdout`, are links without a target name, so everything in these folders is
/// written through.
fn is_special(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) => {
            let is_descriptor = path.starts_with("/dev/std")
                || path.starts_with("/dev/fd")
                || path.starts_with("/proc");
            Ok(!found.is_file() || is_descriptor)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path at the end of the links.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => path = folder_of(&path).join(fs::read_link(&path)?),
            _ => return Ok(path),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "too many levels of symbolic links"))
}

/// A temporary file next to `path` with what `write` writes, synced to disk.
fn saved<T, E: From<io::Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<(TempPath, T), E> {
    let folder = folder_of(path);
    let mode = if access == Access::Umask { 0o666 } else { 0o600 };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flashflow-").suffix(".tmp").permissions(Permissions::from_mode(mode));
    let (mut file, named) = match unnamed::make(folder, mode) {
        Some(file) => (file, None),
        None => {
            let (file, path) = builder.tempfile_in(folder)?.into_parts();
            (file, Some(path))
        }
    };
    let written = write(&mut file)?;
    if access == Access::Everyone {
        file.set_permissions(Permissions::from_mode(0o644))?;
    }
    file.sync_all()?;
    let named = match named {
        Some(named) => named,
        None => {
            let named =
                builder.make_in(folder, |path| unnamed::link(&file, path))?.into_temp_path();
            // btrfs does not log a file without a name: after a power failure it could be empty.
            file.sync_all()?;
            named
        }
    };
    Ok((named, written))
}

/// Syncs the folder, whose entries are stored separately from the files.
fn save_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::thread;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    fn count(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn content_that_cannot_be_written_to_its_end_leaves_the_previous_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("export");
        replace(&path, b"yesterday", Access::Umask).expect("written");
        let failed = replace_with(&path, Access::Umask, |file| {
            file.write_all(b"a part")?;
            Err::<(), _>(io::Error::other("the store is damaged"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).expect("there"), b"yesterday");
        let rows = replace_with(&path, Access::Umask, |file| file.write_all(b"today").map(|()| 1));
        assert_eq!((rows.expect("written"), fs::read(&path).expect("there")), (1, b"today".into()));
        assert_eq!(count(folder.path()), 1);
    }

    /// So nothing is left if the process is killed.
    #[test]
    fn an_unfinished_file_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let has_unnamed_files = rustix::fs::open(folder.path(), flags, Mode::RUSR).is_ok();
        for access in [Access::Owner, Access::Umask, Access::Everyone] {
            let path = folder.path().join("export");
            let written = replace_with(&path, access, |file| {
                file.write_all(b"a part")?;
                Ok::<_, io::Error>(count(folder.path()))
            });
            assert_eq!(written.expect("written"), usize::from(!has_unnamed_files));
            assert_eq!(fs::read(&path).expect("there"), b"a part");
            fs::remove_file(&path).expect("there");
            assert_eq!(count(folder.path()), 0);
        }
    }

    #[test]
    fn a_file_is_replaced_atomically_and_a_failure_leaves_the_previous_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        fs::write(&path, "old, and longer").expect("written");
        for (access, expected) in [(Access::Owner, 0o600), (Access::Everyone, 0o644)] {
            fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("ours");
            replace(&path, b"new", access).expect("written");
            assert_eq!((fs::read(&path).expect("there"), mode(&path)), (b"new".to_vec(), expected));
        }
        let plain = folder.path().join("plain");
        fs::write(&plain, "").expect("written");
        replace(&path, b"new", Access::Umask).expect("written");
        assert_eq!(mode(&path), mode(&plain));

        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("by")).expect("made");
        for refused in
            [replace(&taken, b"new", Access::Umask), replace_entry(&taken, b"new", Access::Umask)]
        {
            assert_eq!(refused.expect_err("a folder").kind(), ErrorKind::IsADirectory);
        }
        let nowhere = folder.path().join("nowhere/file");
        assert_eq!(
            replace(&nowhere, b"", Access::Umask).expect_err("no folder").kind(),
            ErrorKind::NotFound
        );
        assert_eq!(count(folder.path()), 3, "nothing is left of the attempts");
    }

    #[test]
    fn a_symbolic_link_is_kept_and_its_target_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("made");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        symlink("inner/file", &second).expect("made");
        symlink(&second, &first).expect("made");
        // The target does not exist at first.
        for content in ["one", "two"] {
            replace(&first, content.as_bytes(), Access::Owner).expect("written");
            assert_eq!(fs::read_to_string(inner.join("file")).expect("there"), content);
            assert!([&first, &second].iter().all(|link| link.is_symlink()));
        }
        replace_entry(&first, b"three", Access::Umask).expect("written");
        assert!(!first.is_symlink());
        assert_eq!(fs::read_to_string(inner.join("file")).expect("there"), "two");
        let circle = folder.path().join("circle");
        symlink("circle", &circle).expect("made");
        replace(&circle, b"", Access::Umask).expect_err("a circle");
        assert_eq!(count(folder.path()), 4);
    }

    #[test]
    fn fifos_and_devices_are_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
        let link = folder.path().join("link");
        symlink("fifo", &link).expect("made");
        for path in [&fifo, &link] {
            let reader = thread::spawn({
                let fifo = fifo.clone();
                move || {
                    let mut text = String::new();
                    File::open(fifo)
                        .and_then(|mut file| file.read_to_string(&mut text))
                        .map(|_| text)
                }
            });
            replace(path, b"through", Access::Umask).expect("written");
            assert_eq!(reader.join().expect("no panic").expect("read"), "through");
        }
        let secret = replace(&fifo, b"secret", Access::Owner).expect_err("a FIFO");
        assert_eq!(secret.kind(), ErrorKind::InvalidInput);
        assert!(fs::metadata(&fifo).expect("there").file_type().is_fifo());
        replace(Path::new("/dev/null"), b"gone", Access::Umask).expect("written");
        let full = replace(Path::new("/dev/full"), b"lost", Access::Umask).expect_err("full");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        let is_device = |path| fs::metadata(path).expect("there").file_type().is_char_device();
        assert!(is_device("/dev/null") && is_device("/dev/full"));
        assert_eq!(count(folder.path()), 2);
    }

    #[test]
    fn create_replaces_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("seed");
        create(&path, b"one", Access::Owner).expect("made");
        assert_eq!(
            create(&path, b"two", Access::Owner).expect_err("there").kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!((fs::read(&path).expect("there"), mode(&path)), (b"one".to_vec(), 0o600));
        assert_eq!(count(folder.path()), 1);
    }
}
