//! Sends the content of an answer in pieces, and monitors the client's rate.

use super::answer::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum size of a piece.
const PIECE_MAX: usize = 16 << 10;

/// The minimum rate at which a client must read its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Interval of checks.
    pub(super) interval: Duration,
    /// Minimum number of bytes per interval.
    pub(super) least_bytes: u64,
}

impl Pace {
    /// About 550 bytes per second. Kernel buffers drain in steps of some ten kilobytes, so with a shorter interval an honest slow client
    /// would look stalled. C tor ends a connection only after five minutes without any progress.
    pub(super) const REAL: Self =
        Self { interval: Duration::from_secs(120), least_bytes: 64 << 10 };
}

/// The progress of one connection.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    /// Bytes of the answer that the kernel has accepted, to within two pieces.
    bytes: AtomicU64,
    last: Mutex<Instant>,
}

impl Default for Progress {
    /// The progress of a new connection, which counts as progress itself.
    fn default() -> Self {
        Self(Arc::new(Taken { bytes: AtomicU64::new(0), last: Mutex::new(Instant::now()) }))
    }
}

impl Progress {
    /// The time of the last progress, or else of the connection's start.
    pub(super) fn last(&self) -> Instant {
        // The lock guards code that cannot panic.
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns once the client is below the minimum rate.
    pub(super) async fn too_slow(&self, pace: Pace) {
        let mut before = 0;
        loop {
            tokio::time::sleep(pace.interval).await;
            let taken = self.0.bytes.load(Ordering::Relaxed);
            if taken - before < pace.least_bytes {
                return;
            }
            before = taken;
        }
    }
}

/// The content of an answer that is being sent.
#[derive(Debug)]
pub(super) struct Sending {
    body: Body,
    /// Index of the next text, and the number of its bytes that have been sent.
    next: usize,
    offset: usize,
    left_bytes: u64,
    progress: Progress,
}

impl Sending {
    pub(super) fn new(body: Body, progress: Progress) -> Self {
        let left_bytes = body.len() as u64;
        Self { body, next: 0, offset: 0, left_bytes, progress }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            let text = self.body.texts().get(self.next)?;
            let end = text.len().min(self.offset + PIECE_MAX);
            if self.offset < end {
                let piece = text.slice(self.offset..end);
                self.offset = end;
                return Some(piece);
            }
            (self.next, self.offset) = (self.next + 1, 0);
        }
    }
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.next_piece();
        let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
        self.left_bytes -= bytes;
        self.progress.add(bytes);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests;
