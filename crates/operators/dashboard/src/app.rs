//! The state that all handlers share: options, store connections, and limits. It must not know pages or
//! routes.

use crate::response::ErrorResponse;
use axum::extract::State;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Interrupter, Reader, StoreError};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

/// Limit on open event streams.
const EVENT_STREAMS_MAX: usize = 64;
/// Idle store connections kept for reuse.
const IDLE_MAX: usize = 4;

/// Options of a dashboard.
#[derive(Clone, Debug)]
pub struct Options {
    /// The coordinator's store.
    pub store: PathBuf,
    /// The coordinator's newest bandwidth file.
    pub file: PathBuf,
    /// Accepted host names, besides addresses and `localhost`. Otherwise a page elsewhere could point its
    /// own name at this address and read the responses (DNS rebinding).
    pub hosts: Vec<String>,
    /// Returns the current Unix time.
    pub now: fn() -> u64,
}

/// Connections to the store. A request uses one exclusively.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    const fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Result<Reader, StoreError> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| Reader::open(&self.path), Ok)
    }

    fn put(&self, reader: Reader) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts a query when it is dropped. Does nothing if the query has ended.
struct Abandoned {
    task: AbortHandle,
    query: Arc<Mutex<Option<Interrupter>>>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // If it has not begun.
        self.task.abort();
        if let Some(running) = lock(&self.query).as_ref() {
            running.interrupt();
        }
    }
}

/// State shared by all requests.
pub(crate) struct Shared {
    readers: Readers,
    pub(crate) options: Options,
    /// The store's version, which changes with each write.
    pub(crate) changes: watch::Receiver<i64>,
    pub(crate) event_streams: Arc<Semaphore>,
    /// Limits concurrent requests.
    pub(crate) at_once: Semaphore,
    /// Time limit of a request.
    pub(crate) timeout: Duration,
}

/// The state as handlers receive it.
pub(crate) type App = State<Arc<Shared>>;

impl Shared {
    pub(crate) fn new(
        options: Options,
        changes: watch::Receiver<i64>,
        at_once: usize,
        timeout: Duration,
    ) -> Self {
        Self {
            readers: Readers::new(options.store.clone()),
            options,
            changes,
            event_streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            at_once: Semaphore::new(at_once),
            timeout,
        }
    }

    /// Reads from the store on a thread that may block. A connection that failed is not reused. If the
    /// request has ended meanwhile, the query is aborted, and its thread serves the next one.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ErrorResponse> {
        let shared = Arc::clone(self);
        let query = Arc::new(Mutex::new(None));
        let running = Arc::clone(&query);
        let done = tokio::task::spawn_blocking(move || {
            let reader = shared.readers.take()?;
            *lock(&running) = Some(reader.interrupter());
            let found = read(&reader);
            // Before the connection serves another query.
            *lock(&running) = None;
            let found = found?;
            shared.readers.put(reader);
            Ok(found)
        });
        let _abandoned = Abandoned { task: done.abort_handle(), query };
        match done.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(ErrorResponse::Store(error)),
            Err(_) => Err(ErrorResponse::Broken("a query was aborted".to_owned())),
        }
    }

    /// The current Unix time.
    pub(crate) fn now(&self) -> u64 {
        (self.options.now)()
    }
}
