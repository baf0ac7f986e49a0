//! Accepts connections, within limits on their number and duration.

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{self, Sleep};
use tower::ServiceExt as _;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Concurrent connections; further ones wait in the kernel's queue.
    pub(crate) connections: usize,
    /// Time limit for the headers of a request, including the idle time before it: browsers open
    /// connections in advance.
    pub(crate) headers: Duration,
    /// Time limit of a request, including the wait for others. A page takes far less.
    pub(crate) request: Duration,
    /// Time limit for a client that reads nothing while data is pending.
    pub(crate) stall: Duration,
    /// Time limit of a connection. Browsers reconnect for events.
    pub(crate) age: Duration,
}

impl Limits {
    pub(crate) const USUAL: Self = Self {
        connections: 256,
        headers: Duration::from_secs(10),
        request: Duration::from_secs(20),
        stall: Duration::from_secs(20),
        age: Duration::from_secs(3600),
    };
}

/// The pause after a failed accept, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// After a minute of consecutive failures the error is returned.
const FAILURES_MAX: u32 = 600;

/// Accepts connections and serves their requests.
///
/// # Errors
/// The I/O error if accepting fails permanently.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut failures = 0;
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if failures >= FAILURES_MAX => return Err(error),
            Err(_) => {
                failures += 1;
                time::sleep(PAUSE).await;
                continue;
            }
        };
        failures = 0;
        let router = router.clone();
        tokio::spawn(async move {
            let _place = place;
            // A client that disconnects or exceeds a limit needs no report.
            let _ = time::timeout(limits.age, talk(stream, router, limits)).await;
        });
    }
}

async fn talk(stream: TcpStream, router: Router, limits: Limits) -> hyper::Result<()> {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        router.clone().oneshot(request.map(Body::new))
    });
    let stream = TokioIo::new(Unstalled { stream, limit: limits.stall, since: None });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .serve_connection(stream, service)
        .await
}

/// A stream that fails if the peer stops reading.
struct Unstalled {
    stream: TcpStream,
    limit: Duration,
    /// The deadline of the pending write.
    since: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    /// Checks the outcome of a write, and its deadline while it is pending.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let limit = self.limit;
        let since = self.since.get_or_insert_with(|| Box::pin(time::sleep(limit)));
        match since.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
