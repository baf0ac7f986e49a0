//! Connections: how many there are, and how long one may keep us waiting.

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

/// What one who connects may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once; further ones wait in the kernel's queue.
    pub(crate) connections: usize,
    /// How long the headers of a request may take. Between requests, too: browsers open connections in advance.
    pub(crate) headers: Duration,
    /// How long a client that is being sent something may read nothing.
    pub(crate) stall: Duration,
    /// How long a connection may last. Browsers that follow events connect again.
    pub(crate) age: Duration,
}

impl Limits {
    pub(crate) const USUAL: Self = Self {
        connections: 256,
        headers: Duration::from_secs(10),
        stall: Duration::from_secs(20),
        age: Duration::from_secs(3600),
    };
}

/// The pause after a connection could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// After a minute of failures in a row the caller hears of it.
const FAILURES_MAX: u32 = 600;

/// Accepts connections and answers their requests.
///
/// # Errors
/// If accepting connections fails for good.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut failures = 0;
    loop {
        // Nobody closes it.
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
            // A client that goes away, or takes too long, is nothing to report.
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

/// A stream whose other end must go on reading.
struct Unstalled {
    stream: TcpStream,
    limit: Duration,
    /// When it is too late, while something waits to be written.
    since: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    /// What came of writing; an error if it has waited for too long.
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
