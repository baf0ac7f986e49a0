use onion::Duration;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A driver could not be set up, or an operating system call failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct DriverError {
    pub(crate) what: &'static str,
    pub(crate) source: io::Error,
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError { what, source }
}

/// Options of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverOptions {
    /// Time limit for TCP and TLS of a connection, dialled or accepted.
    pub handshake_timeout: Duration,
    /// Time limit for the last bytes of a connection without TLS after the node has closed it.
    pub linger_timeout: Duration,
    /// Limit on connections; beyond it, none is accepted. Dialling is up to the node.
    pub max_conns: usize,
    /// All listeners accept connections without TLS: for destinations of streams.
    pub accepts_plain: bool,
    /// The local address to dial from; any if `None`.
    pub dial_from: Option<IpAddr>,
    /// Minimum interval between polls of the sockets. A longer one means fewer and larger reads and
    /// writes, and so less work for each byte, at the price of latency.
    pub coalesce: Duration,
    /// Threads for [`Action::Work`](onion::node::Action::Work). With none, the driver executes it
    /// at once, which delays everything else.
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
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    pub(super) fn from_mio(waker: &Arc<mio::Waker>) -> Self {
        let waker = Arc::clone(waker);
        // Fails only if the kernel has no memory for a counter; the next timeout wakes the driver.
        Self::new(move || _ = waker.wake())
    }

    /// Makes [`Driver::turn`](super::Driver::turn) or [`Drive::turn`](crate::Drive::turn) return soon.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
