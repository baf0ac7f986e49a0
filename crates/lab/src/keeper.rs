//! The keeper: a shell process that cleans up however this process ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::error::LabError;
use crate::process;

/// Longer than the keeper's own timeout, so that the keeper gives up first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watches over a network's folder and processes until it is dropped or released.
///
/// It has its own process group and reads from a pipe that only this process holds open. The kernel closes the
/// pipe when this process ends, whether by return, panic, Ctrl-C or `kill -9`; then the keeper kills the
/// network's processes and removes the folder.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    /// `None` once closed.
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts the keeper of `dir`, an absolute path.
    pub(crate) fn start(dir: &Path, keep: bool) -> Result<Self, LabError> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", include_str!("keeper.sh"), "flashflow-lab-keeper"])
            .arg(dir)
            .arg(if keep { "keep" } else { "remove" })
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(LabError::io("start the program", Path::new("/bin/sh")))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Dismisses the keeper and lets the network live on.
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
