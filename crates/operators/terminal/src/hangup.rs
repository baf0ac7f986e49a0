use crate::error::Error;
use signal_hook::consts::SIGHUP;
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// SIGHUP: the request that a daemon reads its configuration again.
pub struct Hangup(Arc<AtomicBool>);

impl Hangup {
    /// Takes over the signal, which ends a process by default.
    ///
    /// # Errors
    /// [`Error::Signals`] if the system refuses.
    pub fn install() -> Result<Self, Error> {
        let mark = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&mark)).map_err(Error::Signals)?;
        Ok(Self(mark))
    }

    /// Whether it has arrived since the last call.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
