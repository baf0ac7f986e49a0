//! A folder that is removed with its owner.

use crate::error::LabError;
use crate::keeper::Keeper;
use crate::launch;
use std::path::{Path, PathBuf};

/// A new folder in the system's folder for temporary files, readable by its owner only. It is removed when the
/// value is dropped, and by a [keeper](crate#cleanup) if the process ends otherwise.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    _keeper: Keeper,
}

impl TemporaryFolder {
    /// Creates one.
    ///
    /// # Errors
    /// If the folder cannot be created or the keeper cannot be started.
    pub fn new() -> Result<Self, LabError> {
        let path = launch::make_folder(None)?;
        match Keeper::start(&path, false) {
            Ok(keeper) => Ok(Self { path, _keeper: keeper }),
            Err(error) => {
                let _left_empty = std::fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Its absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    /// The keeper removes what is left, for example if another process is still writing.
    fn drop(&mut self) {
        let _left_to_the_keeper = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn dropping_removes_the_folder_and_its_content() {
        let folder = TemporaryFolder::new().expect("a folder");
        let path = folder.path().to_owned();
        std::fs::create_dir(path.join("inner")).expect("a folder");
        std::fs::write(path.join("inner/file"), "text").expect("a file");
        drop(folder);
        assert!(!path.exists());
    }

    /// Set in the process that the next test kills: this test, started again.
    const OWNER: &str = "FLASHFLOW_TEST_OWNER";

    #[test]
    fn the_folder_is_removed_after_its_owner_was_killed() {
        if std::env::var_os(OWNER).is_some() {
            let folder = TemporaryFolder::new().expect("a folder");
            std::fs::write(folder.path().join("file"), "text").expect("a file");
            eprintln!("{}", folder.path().display());
            // Waits until it is killed.
            let (_open, never) = channel::<()>();
            let _nothing = never.recv_timeout(Duration::from_secs(600));
        }
        let name = "folder::tests::the_folder_is_removed_after_its_owner_was_killed";
        let mut owner = Command::new(std::env::current_exe().expect("a path"))
            .args([name, "--exact", "--nocapture"])
            .env(OWNER, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(owner.stderr.take().expect("piped")).lines();
        let path = PathBuf::from(lines.next().expect("a line").expect("text"));
        assert!(path.join("file").exists());
        let pid = Pid::from_child(&owner);
        kill_process(pid, Signal::KILL).expect("killed");
        owner.wait().expect("its end");
        let (_open, never) = channel::<()>();
        let is_left = || {
            let _nothing = never.recv_timeout(Duration::from_millis(100));
            path.exists()
        };
        assert!(!(0..200).all(|_| is_left()), "{} is left", path.display());
    }
}
