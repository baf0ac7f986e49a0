//! What a relay tells authorities of its bandwidth.

use crate::history::History;
use onion::router::RateLimit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limit, what was observed, and what was carried: noted and read by several threads.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    limit: Mutex<Option<RateLimit>>,
    observed_bytes_s: AtomicU64,
    history: Mutex<History>,
}

impl Bandwidth {
    /// Nothing was carried yet.
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        let limit = Mutex::new(limit);
        Self { limit, observed_bytes_s: AtomicU64::new(0), history: Mutex::default() }
    }

    pub(crate) fn limit(&self) -> Option<RateLimit> {
        // Nobody panics while holding it.
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_limit(&self, limit: Option<RateLimit>) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    /// The observed bandwidth, in bytes/s.
    pub(crate) fn observed_bytes_s(&self) -> u64 {
        self.observed_bytes_s.load(Ordering::Relaxed)
    }

    pub(crate) fn set_observed(&self, bytes_s: u64) {
        self.observed_bytes_s.store(bytes_s, Ordering::Relaxed);
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines about what was carried, for an extra-info document.
    pub(crate) fn history_lines(&self, rate_bytes_s: u64) -> String {
        self.history().lines(rate_bytes_s)
    }
}
