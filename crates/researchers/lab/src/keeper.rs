//! Keepers: shell processes that clean up after this process, however it ends.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::error::LabError;
use crate::process;

/// Longer than the scripts' own timeouts, so that they give up first.
const PATIENCE: Duration = Duration::from_secs(30);

/// A script that cleans up once this value is dropped.
///
/// It has its own process group and reads from a pipe that only this process holds open. The kernel closes the
/// pipe when this process ends, whether by return, panic, Ctrl-C or `kill -9`.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    /// `None` once closed.
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts the keeper of a network's folder, an absolute path. It kills the network's processes, and removes
    /// the folder unless `keep` is set.
    pub(crate) fn start(dir: &Path, keep: bool) -> Result<Self, LabError> {
        let keep = if keep { "keep" } else { "remove" };
        let arguments = [dir.as_os_str(), keep.as_ref()];
        let (keeper, _) = Self::spawn(include_str!("keeper.sh"), "flashflow-lab-keeper", arguments)
            .map_err(LabError::io("start the program", Path::new("/bin/sh")))?;
        Ok(keeper)
    }

    /// Starts a script under this name, and returns its output.
    pub(crate) fn spawn(
        script: &str,
        name: &str,
        arguments: [&OsStr; 2],
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", script, name])
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let (pipe, output) = (child.stdin.take(), child.stdout.take());
        Ok((Self { child, pipe }, output))
    }

    /// Ends the keeper of a network without cleaning up.
    pub(crate) fn release(mut self) -> Result<(), LabError> {
        if let Some(pipe) = &mut self.pipe {
            pipe.write_all(b"release\n")
                .map_err(LabError::io("write to the keeper,", Path::new("/bin/sh")))?;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    /// Lets the keeper clean up and waits for its end.
    fn drop(&mut self) {
        drop(self.pipe.take());
        // A keeper that does not end in time is left to its work.
        let _ended = process::wait_for_end(&mut self.child, PATIENCE);
    }
}
