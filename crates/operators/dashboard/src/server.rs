//! Listens and routes requests.

use crate::app::{App, Options, Shared};
use crate::connections::{Limits, serve};
use crate::response::ErrorResponse;
use crate::{api, events, figures, metrics, pages};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time;

/// Interval at which the store is polled for writes, and the caller for shutdown.
const LATENCY: Duration = Duration::from_millis(250);
/// Limit on concurrent requests; others wait.
const AT_ONCE: usize = 4;

/// Why a dashboard cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The address is not available.
    #[error("cannot listen on {address}: {source}; is another program there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The operating system provides no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// Accepting connections has failed permanently.
    #[error("cannot accept connections: {0}")]
    Listening(io::Error),
}

/// A listening dashboard.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
    pub(crate) limits: Limits,
}

impl Server {
    /// Listens at this address.
    ///
    /// # Errors
    /// [`DashboardError`] if the address is not available.
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

    /// The address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `is_over` returns true.
    ///
    /// # Errors
    /// [`DashboardError`] if accepting connections fails permanently.
    pub fn run(self, is_over: impl Fn() -> bool) -> Result<(), DashboardError> {
        let Self { runtime, listener, options, limits, .. } = self;
        let (notify, changes) = watch::channel(0);
        let shared = Arc::new(Shared::new(options, changes, AT_ONCE, limits.request));
        let end = runtime.block_on(async {
            let watching = tokio::spawn(watch_store(Arc::clone(&shared), notify));
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

/// Publishes the store's version after each write.
async fn watch_store(shared: Arc<Shared>, notify: watch::Sender<i64>) {
    // Uses one connection throughout: a version is meaningful only to the connection that read the
    // previous one.
    let mut reader = None;
    loop {
        let path = shared.options.store.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let reader = reader.or_else(|| store::Reader::open(&path).ok());
            let version = reader.as_ref().and_then(|reader| reader.version().ok());
            (reader, version)
        });
        let Ok((back, version)) = asked.await else { return };
        reader = back.filter(|_| version.is_some());
        if let Some(version) = version {
            notify.send_if_modified(|known| std::mem::replace(known, version) != version);
        }
        time::sleep(LATENCY).await;
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(pages::overview))
        .route("/relays", get(pages::relays))
        .route("/relays/{fingerprint}", get(pages::relay))
        .route("/relay/{fingerprint}", get(pages::relay))
        .route("/relays/{fingerprint}/history.svg", get(figures::history_file))
        .route("/measurements/{id}/seconds.svg", get(figures::seconds_file))
        .route("/totals.svg", get(figures::totals_file))
        .route("/weights.svg", get(figures::weights_file))
        .route("/measurers", get(pages::measurers))
        .route("/measurers/{key}", get(pages::measurer))
        .route("/measurers/{key}/paths.svg", get(figures::paths_file))
        .route("/periods", get(pages::periods))
        .route("/periods/{begin}", get(pages::period))
        .route("/api/overview", get(api::overview))
        .route("/api/relays", get(api::relays))
        .route("/api/relays/{fingerprint}", get(api::relay))
        .route("/api/measurers", get(api::measurers))
        .route("/api/periods", get(api::periods))
        .route("/metrics", get(metrics::metrics))
        .route("/health", get(metrics::health))
        .route("/events", get(events::events))
        .route("/style.css", get(events::style))
        .route("/live.js", get(events::script))
        .fallback(async || ErrorResponse::NotFound("there is no such page".to_owned()))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// The Fetch standard, §3.7; not among the constants of `http`.
const SAME_ORIGIN: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Checks every request, and sets the headers of every response.
async fn guard(State(shared): App, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    // The host of an absolute target counts, and the header is ignored (RFC 9112, section 3.2.2).
    let host = request.uri().authority().map(Authority::as_str).or(host);
    let mut response = if hosts.next().is_some() {
        // RFC 9112, section 3.2. A proxy before the dashboard might have checked the other one.
        (StatusCode::BAD_REQUEST, "the request has two `Host` lines").into_response()
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        StatusCode::METHOD_NOT_ALLOWED.into_response()
    } else if !host.is_some_and(|host| is_own_host(host, &shared.options.hosts)) {
        let problem = "this dashboard is not known by that name; use its address, or --host-name";
        (StatusCode::MISDIRECTED_REQUEST, problem).into_response()
    } else {
        let answer = async {
            // The semaphore is never closed.
            let _permit = shared.at_once.acquire().await;
            next.run(request).await
        };
        match time::timeout(shared.timeout, answer).await {
            Ok(response) => response,
            Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        }
    };
    let headers = response.headers_mut();
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, policy),
        // No page of another origin may embed content of this one.
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

/// Whether a `Host` header names this dashboard.
fn is_own_host(host: &str, names: &[String]) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    // The same name, written as a fully qualified one.
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::is_own_host;

    #[test]
    fn foreign_host_names_are_refused() {
        let names = ["bw.example.org".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:7300",
            "[::1]:7300",
            "localhost:7300",
            "localhost.",
            "BW.example.org:80",
        ] {
            assert!(is_own_host(host, &names), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7300", "localhost.evil.example", "127.0.0.1.evil"]
        {
            assert!(!is_own_host(host, &names), "{host}");
        }
    }
}
