//! Sends the content of an answer piece by piece, and watches the rate at which the client takes it.

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

/// The longest piece.
const PIECE_MAX: usize = 16 << 10;

/// The rate at which a client has to take its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How often its progress is looked at.
    pub(super) look: Duration,
    /// What it has to take from one look to the next.
    pub(super) least_bytes: u64,
}

impl Pace {
    /// Some 550 bytes a second. The kernel's buffers move in steps of some ten kilobytes, so a shorter time would take an honest slow
    /// client for one that has stopped. C tor ends a connection only if nothing at all is taken for five minutes.
    pub(super) const REAL: Self = Self { look: Duration::from_secs(120), least_bytes: 64 << 10 };
}

/// What one connection's client has taken of its answer.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    /// Of the answer, what the kernel has taken, give or take two pieces.
    bytes: AtomicU64,
    last: Mutex<Instant>,
}

impl Default for Progress {
    /// A new connection, which counts as progress.
    fn default() -> Self {
        Self(Arc::new(Taken { bytes: AtomicU64::new(0), last: Mutex::new(Instant::now()) }))
    }
}

impl Progress {
    /// When the connection began, or its client last took a part of the answer.
    pub(super) fn last(&self) -> Instant {
        // Nobody panics while holding it.
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns once the client has taken less than it has to.
    pub(super) async fn too_slow(&self, pace: Pace) {
        let mut before = 0;
        loop {
            tokio::time::sleep(pace.look).await;
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
    /// The text that comes next, and how much of it has been sent.
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
