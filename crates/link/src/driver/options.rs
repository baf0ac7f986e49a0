use mio::Waker;
use onion::Duration;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A worker could not be set up, or the operating system fails it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct DriverError {
    pub(crate) what: &'static str,
    pub(crate) source: io::Error,
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError { what, source }
}

/// Choices for a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverOptions {
    /// Time for TCP and TLS of a connection, dialled or accepted.
    pub handshake_timeout: Duration,
    /// Time for the last bytes of a connection without TLS after the node has closed it.
    pub linger_timeout: Duration,
    /// Connections at most; beyond that, none is accepted. Dialling is the node's business.
    pub max_conns: usize,
    /// What comes in is without TLS, on all listeners: for destinations of streams.
    pub accepts_plain: bool,
    /// The local address to dial from; any if `None`.
    pub dial_from: Option<IpAddr>,
    /// Least time between two looks at the sockets. Longer means fewer and larger reads and writes,
    /// and so less work for each byte, at the price of latency.
    pub coalesce: Duration,
    /// Threads for what a node wants done elsewhere ([`Action::Work`](onion::node::Action::Work)). With none it is done at once, and
    /// all else waits.
    pub workers: usize,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(15),
            linger_timeout: Duration::from_secs(15),
            max_conns: 4096,
            accepts_plain: false,
            dial_from: None,
            coalesce: Duration::ZERO,
            workers: 0,
        }
    }
}

/// Wakes a driver from another thread.
#[derive(Clone)]
pub struct Remote(Arc<dyn Fn() + Send + Sync>);

impl Remote {
    pub(crate) fn by(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    pub(super) fn of(waker: &Arc<Waker>) -> Self {
        let waker = Arc::clone(waker);
        // Fails only where the kernel has no memory for a counter; then the next timeout wakes.
        Self::by(move || _ = waker.wake())
    }

    /// Makes [`Driver::turn`](super::Driver::turn) or [`Drive::turn`](crate::Drive::turn) return soon.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}
