//! Listening, and who is answered what.

use crate::answer::{self, Refused};
use crate::connections::{Limits, serve};
use crate::read::Readers;
use crate::{api, figures, metrics, pages};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time;

/// How often the store is asked whether somebody has written, and the caller whether it is over.
const LATENCY: Duration = Duration::from_millis(250);
/// A page takes far less; one that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Requests that are worked on at once; others wait.
const AT_ONCE: usize = 4;
/// Who may follow events at once.
const FOLLOWERS: usize = 64;

/// What is shown, and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The coordinator's store.
    pub store: PathBuf,
    /// Its newest bandwidth file.
    pub file: PathBuf,
    /// Names under which it may be asked, besides addresses and `localhost`: a page elsewhere could give a name of its own our
    /// address, and then read what we say.
    pub hosts: Vec<String>,
    /// The Unix time now.
    pub now: fn() -> u64,
}

/// Why there is no dashboard.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}; is another program there?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// Accepting connections has failed for good.
    #[error("cannot accept connections: {0}")]
    Listening(io::Error),
}

/// A dashboard that listens.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
    pub(crate) limits: Limits,
}

/// What all answers are made of.
pub(crate) struct Shared {
    pub(crate) readers: Readers,
    pub(crate) options: Options,
    pub(crate) changes: watch::Receiver<i64>,
    pub(crate) followers: Arc<Semaphore>,
    at_once: Semaphore,
}

pub(crate) type App = State<Arc<Shared>>;

impl Server {
    /// Listens at this address.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn bind(address: SocketAddr, options: Options) -> Result<Self, DashboardError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(AT_ONCE + 2)
            .enable_all()
            .build()
            .map_err(DashboardError::Threads)?;
        let failed = |source| DashboardError::Listen { address, source };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { runtime, listener, address, options, limits: Limits::USUAL })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `is_over` returns true.
    ///
    /// # Errors
    /// If accepting connections fails for good.
    pub fn run(self, is_over: impl Fn() -> bool) -> Result<(), DashboardError> {
        let Self { runtime, listener, options, limits, .. } = self;
        let (tell, changes) = watch::channel(0);
        let shared = Arc::new(Shared {
            readers: Readers::new(options.store.clone()),
            options,
            changes,
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            at_once: Semaphore::new(AT_ONCE),
        });
        let end = runtime.block_on(async {
            let watching = tokio::spawn(watch_store(Arc::clone(&shared), tell));
            let over = async {
                while !is_over() {
                    time::sleep(LATENCY).await;
                }
            };
            let end = tokio::select! {
                end = serve(listener, router(shared), limits) => end,
                () = over => Ok(()),
            };
            watching.abort();
            end
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        end.map_err(DashboardError::Listening)
    }
}

/// Tells whenever somebody has written.
async fn watch_store(shared: Arc<Shared>, tell: watch::Sender<i64>) {
    // A connection of its own: a version means something to the connection that asked before.
    let mut reader = None;
    loop {
        let path = shared.options.store.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let reader = reader.or_else(|| store::Reader::open(&path).ok());
            let version = reader.as_ref().and_then(|it| it.version().ok());
            (reader, version)
        });
        let Ok((back, version)) = asked.await else { return };
        reader = back.filter(|_| version.is_some());
        if let Some(version) = version {
            tell.send_if_modified(|known| std::mem::replace(known, version) != version);
        }
        time::sleep(LATENCY).await;
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(pages::overview))
        .route("/relays", get(pages::relays))
        .route("/relays/{fingerprint}", get(pages::relay))
        .route("/relays/{fingerprint}/history.svg", get(figures::history))
        .route("/measurements/{id}/seconds.svg", get(figures::seconds))
        .route("/measurers", get(pages::measurers))
        .route("/periods", get(pages::periods))
        .route("/periods/{begin}", get(pages::period))
        .route("/api/overview", get(api::overview))
        .route("/api/relays", get(api::relays))
        .route("/api/relays/{fingerprint}", get(api::relay))
        .route("/api/measurers", get(api::measurers))
        .route("/api/periods", get(api::periods))
        .route("/metrics", get(metrics::metrics))
        .route("/health", get(metrics::health))
        .route("/events", get(answer::events))
        .route("/style.css", get(answer::style))
        .route("/live.js", get(answer::script))
        .fallback(async || Refused::NotFound("there is no such page".to_owned()))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// The Fetch standard, §3.7. Not among the names that the library has.
const SAME_ORIGIN: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What holds for all answers.
async fn guard(State(shared): App, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let mut response = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        StatusCode::METHOD_NOT_ALLOWED.into_response()
    } else if !host.is_some_and(|host| may_be_asked_as(host, &shared.options.hosts)) {
        let problem = "this dashboard is not known by that name; use its address, or --host-name";
        (StatusCode::MISDIRECTED_REQUEST, problem).into_response()
    } else {
        // Nobody closes it.
        let _permit = shared.at_once.acquire().await;
        match time::timeout(TIMEOUT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        }
    };
    let headers = response.headers_mut();
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, policy),
        // No page of another origin embeds anything of this one.
        (SAME_ORIGIN, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether a request under this name is meant for us.
fn may_be_asked_as(host: &str, names: &[String]) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::may_be_asked_as;

    #[test]
    fn a_name_that_somebody_else_gave_our_address_is_refused() {
        let names = ["bw.example.org".to_owned()];
        for host in
            ["127.0.0.1", "127.0.0.1:7300", "[::1]:7300", "localhost:7300", "BW.example.org:80"]
        {
            assert!(may_be_asked_as(host, &names), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7300", "localhost.evil.example", "127.0.0.1.evil"]
        {
            assert!(!may_be_asked_as(host, &names), "{host}");
        }
    }
}
