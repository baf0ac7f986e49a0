//! Compresses answers on separate threads, within limits.
//!
//! Consensuses, consensus diffs and the descriptors of all relays are compressed once and kept with the cache. Other documents are
//! compressed on request, within a rate limit for all clients together. Beyond it they are sent uncompressed, which clients must accept
//! (dir-spec.txt, section 6.1) and which costs neither work nor memory.

use super::answer::{Answer, Body};
use bytes::Bytes;
use dirmgr::documents::deflate;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Number of answers that are compressed at the same time.
pub(super) const THREADS: usize = 2;
/// Limit on memory of compressed answers outside the cache, in bytes. Beyond it, documents are sent uncompressed.
const ANSWERS_MAX: usize = 64 << 20;
/// Maximum size of a text that is compressed for a single request. Tor requests fewer than a hundred documents, about 300 KB.
const TEXT_MAX: usize = 1 << 20;
/// Bytes of text compressed for single requests, for all clients together: a tenth of a processor.
const RATE_BYTES_S: usize = 4 << 20;
/// Bytes of text compressed at once after a pause, for all clients together.
const BURST_BYTES: usize = 32 << 20;

/// Compression work, shared by all connections.
#[derive(Debug)]
pub(super) struct Work {
    held_bytes: AtomicUsize,
    /// Total size of compressed texts, before compression.
    compressed_bytes: AtomicUsize,
    budget: Mutex<Budget>,
}

impl Work {
    pub(super) fn new(now: Instant) -> Self {
        let budget = Mutex::new(Budget { left_bytes: BURST_BYTES, at: now });
        Self { held_bytes: AtomicUsize::new(0), compressed_bytes: AtomicUsize::new(0), budget }
    }

    /// Total size of compressed texts, before compression.
    #[cfg(test)]
    pub(super) fn compressed_bytes(&self) -> usize {
        self.compressed_bytes.load(Ordering::Relaxed)
    }

    fn compress(&self, texts: &[Bytes]) -> Bytes {
        let bytes = texts.iter().map(Bytes::len).sum();
        self.compressed_bytes.fetch_add(bytes, Ordering::Relaxed);
        deflate(texts.iter().map(|text| &text[..]))
    }

    fn may_compress(&self, bytes: usize) -> bool {
        // The lock guards code that cannot panic.
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        bytes <= TEXT_MAX && budget.take(Instant::now(), bytes)
    }
}

/// A rate with a burst.
#[derive(Debug)]
struct Budget {
    left_bytes: usize,
    at: Instant,
}

impl Budget {
    fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let since = now.saturating_duration_since(self.at).min(Duration::from_secs(60));
        let gained = usize::try_from(since.as_millis()).unwrap_or(0) * RATE_BYTES_S / 1000;
        self.left_bytes = (self.left_bytes + gained).min(BURST_BYTES);
        self.at = now;
        let has_enough = bytes <= self.left_bytes;
        if has_enough {
            self.left_bytes -= bytes;
        }
        has_enough
    }
}

/// The memory of a connection's answer. Dropping it releases the memory.
#[derive(Debug)]
pub(super) struct Held {
    work: Arc<Work>,
    bytes: AtomicUsize,
}

impl Held {
    pub(super) const fn new(work: Arc<Work>) -> Self {
        Self { work, bytes: AtomicUsize::new(0) }
    }

    /// Reserves memory. Returns whether there was enough.
    fn take(&self, bytes: usize) -> bool {
        let take = |held: usize| held.checked_add(bytes).filter(|held| *held <= ANSWERS_MAX);
        let taken = self.work.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.work.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The answer to send: compressed if the client accepts that and the limits permit it. Memory is reserved before the work.
    pub(super) async fn finish(&self, answer: Answer) -> Answer {
        if !answer.wants_deflated {
            return answer;
        }
        match &answer.body {
            Body::All(all) => {
                if let Some(deflated) = all.ready().cloned() {
                    return answer.deflated(deflated);
                }
                let (all, work) = (Arc::clone(all), Arc::clone(&self.work));
                // It completes even if the client disconnects: the next client needs it.
                let done = spawn_blocking(move || all.deflated(|texts| work.compress(texts)));
                match done.await {
                    Ok(deflated) => answer.deflated(deflated),
                    Err(_) => answer,
                }
            }
            Body::Texts(texts) => {
                let bytes = answer.body.len();
                if !self.take(bytes) {
                    return answer;
                }
                if !self.work.may_compress(bytes) {
                    self.release(bytes);
                    return answer;
                }
                let (texts, work) = (texts.clone(), Arc::clone(&self.work));
                match spawn_blocking(move || work.compress(&texts)).await {
                    Ok(deflated) => {
                        self.release(bytes.saturating_sub(deflated.len()));
                        answer.deflated(deflated)
                    }
                    Err(_) => answer,
                }
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(self.bytes.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
