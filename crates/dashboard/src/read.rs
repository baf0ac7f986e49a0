//! Reading the store for many at once.

use crate::answer::Refused;
use crate::server::Shared;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Reader, StoreError};

/// Connections that are kept.
const KEPT: usize = 4;

/// Connections to the store; a request has one for itself.
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Result<Reader, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Reader::open(&self.path), Ok)
    }

    fn put(&self, reader: Reader) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(reader);
        }
    }
}

impl Shared {
    /// Reads on a thread that may wait. A connection that failed is not used again.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refused> {
        let shared = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let reader = shared.readers.take()?;
            let found = read(&reader)?;
            shared.readers.put(reader);
            Ok(found)
        });
        match done.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Refused::Store(error)),
            Err(_) => Err(Refused::Broken("a query ended in the middle".to_owned())),
        }
    }

    /// The Unix time.
    pub(crate) fn now(&self) -> u64 {
        (self.options.now)()
    }
}
