//! The directory server: HTTP on a loopback port, where the engine connects the streams of clients
//! that ask for a directory (BEGIN_DIR).
//!
//! The server has one thread, and two more for compression. It bounds the resources that clients can use: the number of connections,
//! their duration and minimum rate, the length of requests, memory, and compression. Clients cannot make it refuse requests of others:
//! a new connection replaces the one that has been without progress for longest, and if memory for compressed answers is exhausted,
//! documents are sent uncompressed.

mod answer;
mod body;
mod connections;
mod work;

use answer::{Answer, Request, answer};
use body::{Pace, Progress, Sending};
use connections::{CONNECTIONS_MAX, Connections};
use dirmgr::Cache;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, EXPIRES, HeaderMap, HeaderName,
    HeaderValue, IF_MODIFIED_SINCE, PRAGMA, VARY,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use link::unix_time_s;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use work::{Held, Work};

/// Time limit for receiving a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a connection. Slow clients take minutes for a consensus.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1_200);
/// Maximum length of a request. The paths that tor requests have less than 4 KiB.
const REQUEST_MAX: usize = 32 << 10;
/// Size of a connection's send buffer in the kernel, in bytes. It is small, so that stalled clients are noticed early and cost little.
const SEND_BUFFER: usize = 64 << 10;
/// Pause after a connection could not be accepted for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Header with the digests of the client's consensuses.
const DIFF_FROM: HeaderName = HeaderName::from_static("x-or-diff-from-consensus");
const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    /// Dropping it ends the server.
    _stop: oneshot::Sender<Infallible>,
}

impl Server {
    /// Listens on a free loopback port, and serves the documents of the cache.
    pub(crate) fn start(cache: Cache) -> io::Result<Self> {
        Self::with(cache, Pace::REAL, CONNECTIONS_MAX)
    }

    fn with(cache: Cache, pace: Pace, connections_max: usize) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        // Accepted connections inherit it.
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(work::THREADS)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("dirserver".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, cache, pace, connections_max) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, _stop: stop })
    }

    /// The address of the listener.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: std::net::TcpListener, cache: Cache, pace: Pace, connections_max: usize) {
    // A non-blocking listener cannot fail here.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let work = Arc::new(Work::new(tokio::time::Instant::now()));
    let mut connections = Connections::new(connections_max);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (cache, progress) = (cache.clone(), Progress::default());
        let held = Held::new(Arc::clone(&work));
        connections.add(progress.clone(), async move {
            let talk = talk(stream, &cache, &held, &progress);
            // A client that disconnects or is too slow is not logged.
            tokio::select! {
                _ = talk => {}
                () = progress.too_slow(pace) => {}
                () = tokio::time::sleep(CONNECTION_TIMEOUT) => {}
            }
        });
    }
}

async fn talk(
    stream: TcpStream,
    cache: &Cache,
    held: &Held,
    progress: &Progress,
) -> hyper::Result<()> {
    let service = service_fn(async |request: hyper::Request<Incoming>| {
        let now = unix_time_s();
        let answer = if request.method() == Method::GET {
            let request = Request {
                path: request.uri().path(),
                accept_encoding: text(request.headers(), &ACCEPT_ENCODING).unwrap_or_default(),
                if_modified_since: text(request.headers(), &IF_MODIFIED_SINCE).and_then(unix_time),
                diff_from: text(request.headers(), &DIFF_FROM).unwrap_or_default(),
            };
            let answer = answer(&cache.get(), request, now);
            if answer.is_diff {
                cache.diffs().count_served();
            }
            held.finish(answer).await
        } else {
            Answer::short(400, "Bad request")
        };
        Ok::<_, Infallible>(response(answer, now, progress))
    });
    http1::Builder::new()
        // Tor recognizes headers in title case only.
        .title_case_headers(true)
        .keep_alive(false)
        .half_close(true)
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Converts an HTTP date to Unix seconds.
fn unix_time(text: &str) -> Option<u64> {
    let time = jiff::fmt::strtime::parse(HTTP_DATE, text).ok()?.to_datetime().ok()?;
    let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
    u64::try_from(time.as_second()).ok()
}

fn http_date(unix_time_s: u64) -> Option<HeaderValue> {
    let time = Timestamp::from_second(i64::try_from(unix_time_s).ok()?).ok()?;
    HeaderValue::from_str(&time.strftime(HTTP_DATE).to_string()).ok()
}

fn response(answer: Answer, now: u64, progress: &Progress) -> Response<Sending> {
    let Answer { status, reason, body, is_deflated, lifetime_s, is_consensus, .. } = answer;
    let mut response = Response::new(Sending::new(body, progress.clone()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    response.extensions_mut().insert(hyper::ext::ReasonPhrase::from_static(reason.as_bytes()));
    let headers = response.headers_mut();
    // Tor derives clock skew from it.
    headers.extend(http_date(now).map(|date| (DATE, date)));
    if status != 200 {
        return response;
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let encoding = if is_deflated { "deflate" } else { "identity" };
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    if lifetime_s > 0 {
        headers.extend(http_date(now.saturating_add(lifetime_s)).map(|date| (EXPIRES, date)));
    } else {
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    }
    if is_consensus {
        headers.insert(VARY, HeaderValue::from_static("X-Or-Diff-From-Consensus"));
    }
    response
}

#[cfg(test)]
mod tests;
