//! The server.

use crate::FORMAT;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time limit for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The metrics server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Dropping it ends the server.
    _stop: oneshot::Sender<Infallible>,
}

impl Server {
    /// Listens, and answers `/metrics` with the text of `source`, or with an error if that is `None`. Anybody who can connect gets an
    /// answer: restrict access by the address.
    ///
    /// # Errors
    /// The address is in use, or there is no thread.
    pub fn start(
        address: SocketAddr,
        source: impl Fn() -> Option<String> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, source) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, _stop: stop })
    }

    /// The address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves one request at a time: there is one scraper.
async fn serve(listener: std::net::TcpListener, source: impl Fn() -> Option<String>) {
    // A non-blocking socket cannot fail here.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = service_fn(async |request: Request<Incoming>| {
            let text = (request.uri().path() == "/metrics").then(&source);
            Ok::<_, Infallible>(response(text))
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        // A client that disconnects or is too slow needs no report.
        let _ = tokio::time::timeout(TIMEOUT, connection).await;
    }
}

/// The metrics, or an error: no such path, or the daemon has ended.
fn response(text: Option<Option<String>>) -> Response<Full<Bytes>> {
    let (status, text) = match text {
        None => (StatusCode::NOT_FOUND, String::new()),
        Some(None) => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        Some(Some(text)) => (StatusCode::OK, text),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(FORMAT));
    response
}
