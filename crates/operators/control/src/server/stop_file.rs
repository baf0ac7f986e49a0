//! The kill switch: a file whose existence ends all load, and prevents new load.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use tokio::sync::watch;

/// A stop file, and whether it was there at the last look.
#[derive(Clone)]
pub(super) struct StopFile {
    path: Option<PathBuf>,
    seen: watch::Receiver<bool>,
}

impl StopFile {
    /// With the sender for [`look`](Self::look).
    pub(super) fn new(path: Option<PathBuf>) -> (watch::Sender<bool>, Self) {
        let (halt, seen) = watch::channel(false);
        (halt, Self { path, seen })
    }

    /// Looks for the file, and wakes all that [wait](Self::appeared).
    pub(super) fn look(&self, halt: &watch::Sender<bool>) {
        let found = self.find();
        let is_there = found.is_err();
        if halt.send_if_modified(|seen| std::mem::replace(seen, is_there) != is_there) {
            match found {
                Err(reason) => tracing::warn!("all load ends: {reason}"),
                Ok(()) => tracing::info!("the stop file is gone: orders are accepted again"),
            }
        }
    }

    /// Waits until the file is there. Returns the reason for the other side.
    pub(super) async fn appeared(&mut self) -> String {
        // The sender lives as long as the daemon.
        let _ = self.seen.wait_for(|seen| *seen).await;
        self.check().err().unwrap_or_default()
    }

    /// Whether load is permitted now.
    ///
    /// # Errors
    /// The file is there, or whether it is there cannot be found out. Or it was there at the last look, which ends sessions.
    pub(super) fn check(&self) -> Result<(), String> {
        self.find()?;
        if *self.seen.borrow() {
            return Err("the measurer's stop file was there a moment ago".to_owned());
        }
        Ok(())
    }

    fn find(&self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = path.display();
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("the measurer cannot read its stop file {file}: {error}")),
            Ok(_) => Err(format!(
                "the measurer's operator has stopped all load: {file} exists, and load is permitted again when it is removed"
            )),
        }
    }
}
