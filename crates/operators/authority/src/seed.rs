//! The secret seed of the schedule, in a separate file.

use crate::shell;
use cli::Error;
use coordinator::plan::Seed;
use files::Access;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// 64 digits, a newline, and a margin.
const FILE_MAX: u64 = 256;

/// Reads the seed from this file, or creates it. The seed reveals when each relay is measured, so only its owner may
/// read it.
pub(super) fn read_or_make(path: &Path) -> Result<Seed, Error> {
    match read(path) {
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => make(path),
        other => other,
    }
}

fn read(path: &Path) -> Result<Seed, Error> {
    let missing = || Error::File {
        what: "read the seed",
        path: path.to_owned(),
        source: ErrorKind::NotFound.into(),
    };
    let text = read_secret(path, FILE_MAX)?.ok_or_else(missing)?;
    let mut bytes = [0; 32];
    hex::decode_to_slice(text.trim_end(), &mut bytes).map_err(|_| Error::Config {
        path: path.to_owned(),
        problem:
            "not the seed of a schedule, 64 hexadecimal digits; remove it, and a new one is made"
                .to_owned(),
    })?;
    Ok(Seed::from_bytes(bytes))
}

/// The text of a file that only its owner may read, up to `most` bytes; `None` if it does not exist.
pub(super) fn read_secret(path: &Path, most: u64) -> Result<Option<String>, Error> {
    let failed = |source| Error::File { what: "read the seed", path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let name = path.display();
        let problem = format!(
            "others can read the seed of the schedule (mode {mode:03o}); remove it, and a new one is made. If no one \
             has read it: chmod 600 {name}"
        );
        return Err(Error::Config { path: path.to_owned(), problem });
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Replaces a file that only its owner may read. Either version is complete, even if the process is killed.
pub(super) fn replace_secret(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::File { what: "write the seed", path: path.to_owned(), source };
    files::replace(path, text.as_bytes(), Access::Owner).map_err(failed)
}

/// The name appears only once the whole seed is on the disk: if the process is killed before, the next one draws
/// another seed.
fn make(path: &Path) -> Result<Seed, Error> {
    let failed = |source| Error::File { what: "write the seed", path: path.to_owned(), source };
    let bytes = shell::random()?;
    fs::create_dir_all(files::folder_of(path)).map_err(failed)?;
    let text = format!("{}\n", hex::encode(bytes));
    // Never replaces a seed that another coordinator has just drawn.
    match files::create(path, text.as_bytes(), Access::Owner) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return read(path),
        made => made.map_err(failed)?,
    }
    Ok(Seed::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_drawn_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/schedule.seed");
        let seed = read_or_make(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("listed").count(), 1);
        assert!(read_or_make(&path).expect("read") == seed, "the same seed");
        let other = read_or_make(&folder.path().join("other.seed")).expect("made");
        assert!(other != seed);
    }

    #[test]
    fn a_seed_that_others_can_read_and_an_invalid_one_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schedule.seed");
        read_or_make(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        let error = read_or_make(&path).expect_err("exposed").to_string();
        assert!(error.contains("mode 640") && error.contains("schedule.seed"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        for text in ["", "12", "x".repeat(64).as_str(), "ab".repeat(33).as_str()] {
            fs::write(&path, text).expect("ours");
            let error = read_or_make(&path).expect_err("no seed").to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
