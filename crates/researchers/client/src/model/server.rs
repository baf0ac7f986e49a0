//! The performance directory's HTTP server. It serves one document.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Path of the document.
pub const PATH: &str = "/flashflow/performance";
/// Limit on connections; others wait.
const CONNECTIONS_MAX: usize = 64;
/// Time limit for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Limit on the length of a request.
const REQUEST_MAX: usize = 16 << 10;
/// The pause after a failed accept, for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running performance directory. Dropping it stops it.
#[derive(Debug)]
pub struct DirectoryServer {
    address: SocketAddr,
    document: Arc<Mutex<Bytes>>,
    /// Dropping it stops the server.
    _stop: oneshot::Sender<Infallible>,
}

impl DirectoryServer {
    /// Serves this document, the output of [`sign`](super::sign).
    ///
    /// # Errors
    /// The I/O error if the address is not available, or no thread can be started.
    pub fn start(address: SocketAddr, document: Vec<u8>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let document = Arc::new(Mutex::new(Bytes::from(document)));
        let served = Arc::clone(&document);
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("performance".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, document, _stop: stop })
    }

    /// The address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the document.
    pub fn replace(&self, document: Vec<u8>) {
        // The lock guards one assignment.
        *self.document.lock().unwrap_or_else(PoisonError::into_inner) = document.into();
    }
}

async fn serve(listener: std::net::TcpListener, document: Arc<Mutex<Bytes>>) {
    // A non-blocking socket cannot fail here.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let document = Arc::clone(&document);
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(async |request: Request<Incoming>| {
                Ok::<_, Infallible>(answer(&request, &document))
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(TIMEOUT)
                .max_buf_size(REQUEST_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // A client that disconnects or is too slow needs no report.
            let _ = tokio::time::timeout(TIMEOUT, connection).await;
        });
    }
}

fn answer(request: &Request<Incoming>, document: &Mutex<Bytes>) -> Response<Full<Bytes>> {
    let is_known = request.method() == Method::GET && request.uri().path() == PATH;
    let body = match is_known {
        true => document.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        false => Bytes::new(),
    };
    let mut response = Response::new(Full::new(body));
    let binary = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, binary);
    if !is_known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

#[cfg(test)]
mod tests {
    use super::super::{Link, Model, Node, Pair, merge, public_key, sign, verify};
    use super::*;
    use netdoc::RsaId;
    use netdoc::fetch::{Fetcher, Resource};
    use std::net::Ipv4Addr;

    #[test]
    fn a_directory_serves_its_model_and_nothing_else() {
        let secret = [9; 32];
        let document = |made| {
            let model = Model::new(made, [].into(), [].into());
            sign(&model, &secret).expect("signed")
        };
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = DirectoryServer::start(here, document(1000)).expect("started");
        let get =
            |path: &str| Fetcher::default().get(server.address(), &Resource::Path(path.to_owned()));
        let found = verify(&get(PATH).expect("fetched"), &public_key(&secret), 1000);
        assert_eq!(found.expect("believed").model.made_unix_s(), 1000);
        assert!(get("/").is_err());
        server.replace(document(1001));
        let found = verify(&get(PATH).expect("fetched"), &public_key(&secret), 1000);
        assert_eq!(found.expect("believed").model.made_unix_s(), 1001);
    }

    /// Three directories, one of which inflates one link, deflates another, invents one, and
    /// withholds a third.
    #[test]
    fn one_lying_directory_of_three_moves_no_value_out_of_the_honest_range() {
        const MADE: u64 = 1000;
        let relay = |number: u8| RsaId([number; 20]);
        let link = |a, b, rtt_ms: f64, kb_s: f64| {
            let link = Link { rtt_ms: Some(rtt_ms), throughput_kb_s: Some(kb_s) };
            (Pair::new(relay(a), relay(b)), link)
        };
        let honest = |scale: f64| {
            [
                link(1, 2, 80.0 * scale, 100.0),
                link(2, 3, 20.0 * scale, 900.0),
                link(3, 4, 50.0 * scale, 300.0),
            ]
        };
        let lies = [link(1, 2, 0.001, 1e6), link(2, 3, 59_000.0, 0.1), link(1, 4, 0.001, 1e6)];
        let served = [&honest(1.0)[..], &lies[..], &honest(1.1)[..]];
        let models = served.iter().zip(1_u8..).map(|(links, number)| {
            let nodes = [(relay(1), Node::default())].into();
            let model = Model::new(MADE, nodes, links.iter().copied().collect());
            let secret = [number; 32];
            let document = sign(&model, &secret).expect("signed");
            let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = DirectoryServer::start(here, document).expect("started");
            let path = Resource::Path(PATH.to_owned());
            let got = Fetcher::default().get(server.address(), &path).expect("fetched");
            verify(&got, &public_key(&secret), MADE).expect("believed").model
        });
        let merged = merge(None, &models.collect::<Vec<_>>());
        let of = |a, b| merged.links().get(&Pair::new(relay(a), relay(b)));
        for (a, b, rtt_ms, kb_s) in [(1, 2, 80.0, 100.0), (2, 3, 20.0, 900.0), (3, 4, 50.0, 300.0)]
        {
            let found = of(a, b).expect("two speak of it");
            let (rtt, rate) = (found.rtt_ms.expect("known"), found.throughput_kb_s.expect("known"));
            assert!((rtt_ms..=rtt_ms * 1.1).contains(&rtt), "{a}, {b}: {rtt} ms");
            assert!((rate - kb_s).abs() < 0.001, "{a}, {b}: {rate} kB/s");
        }
        assert_eq!(of(1, 4), None, "only the liar speaks of it");
    }
}
