//! Sends the content of an answer piece by piece, and watches the rate at which the client takes it.

use super::answer::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

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

/// The bytes of one connection's answer that the kernel has taken, give or take two pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Returns once the client has taken less than it has to.
    pub(super) async fn too_slow(&self, pace: Pace) {
        let mut before = 0;
        loop {
            tokio::time::sleep(pace.look).await;
            let taken = self.0.load(Ordering::Relaxed);
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
        self.progress.0.fetch_add(bytes, Ordering::Relaxed);
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
