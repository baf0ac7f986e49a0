//! BackgroundDownloads of a C tor client, one after another, until they are stopped.

use crate::error::{Error, Result};
use lab::{Background, Content, download_while};
use link::Clock;
use onion::Duration;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use terminal::Interrupt;

/// BackgroundDownloads at a time, each on a circuit of its own.
pub(crate) const PARALLEL: u64 = 4;

/// The first of them must complete within this time.
const START: Duration = Duration::from_secs(120);

/// Between two looks at the downloads, and after a failed one.
const STEP: Duration = Duration::from_millis(50);

/// The ends of downloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// The client's SOCKS port.
    pub(crate) socks: SocketAddr,
    /// The server of the content.
    pub(crate) server: SocketAddr,
}

/// What is downloaded again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DownloadSpec {
    pub(crate) bytes: u64,
    /// A download without a byte for so long has failed.
    pub(crate) patience: Duration,
}

/// BackgroundDownloads until it is dropped.
pub(crate) struct BackgroundDownloads {
    shared: Arc<Shared>,
    _threads: Background,
}

#[derive(Default)]
struct Shared {
    each: DownloadSpec,
    bytes: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// The last problem.
    problem: Mutex<Option<String>>,
}

impl Shared {
    /// BackgroundDownloads once, and compares that with what it should be. Returns the pause after it.
    fn download(
        &self,
        Endpoints { socks, server }: Endpoints,
        isolation: &str,
        seed: u64,
        must_stop: &AtomicBool,
    ) -> Duration {
        let host = server.ip().to_string();
        let DownloadSpec { bytes: len, patience } = self.each;
        let mut on_bytes = |more: u64| {
            self.bytes.fetch_add(more, Ordering::AcqRel);
            !must_stop.load(Ordering::Acquire)
        };
        let (from, content) = ((host.as_str(), server.port()), Content { len, seed });
        let result = download_while(socks, from, content, isolation, patience, &mut on_bytes);
        if must_stop.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let problem = match result {
            Ok(download) if download.is_right => {
                self.completed.fetch_add(1, Ordering::AcqRel);
                return Duration::ZERO;
            }
            Ok(download) => format!("{} of {len} bytes arrived, or wrong ones", download.received),
            Err(error) => error.to_string(),
        };
        self.failed.fetch_add(1, Ordering::AcqRel);
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
        STEP
    }
}

impl BackgroundDownloads {
    /// Starts the downloads; `name` isolates their circuits from others.
    pub(crate) fn start(ends: Endpoints, name: &str, each: DownloadSpec) -> Result<Self> {
        let shared = Arc::new(Shared { each, ..Shared::default() });
        let mut threads = Background::default();
        for number in 1..=PARALLEL {
            // C tor replaces a circuit that breaks for the next download.
            let (theirs, isolation) = (Arc::clone(&shared), format!("{name} {number}"));
            let mut seed = number;
            let turn = move |must_stop: &AtomicBool| {
                let pause = theirs.download(ends, &isolation, seed, must_stop);
                seed += PARALLEL;
                pause
            };
            threads.add("downloads", turn).map_err(Error::clients)?;
        }
        Ok(Self { shared, _threads: threads })
    }

    /// Waits until this number of downloads has completed.
    pub(crate) fn wait_until_completed(
        &self,
        count: u64,
        clock: Clock,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let deadline = clock.now() + START;
        while self.completed() < count {
            if clock.now() > deadline {
                let problem = self.problem().unwrap_or_default();
                return Err(Error::Clients(format!("downloads do not complete: {problem}")));
            }
            if interrupt.wait(STEP) {
                break;
            }
        }
        Ok(())
    }

    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// BackgroundDownloads that have completed.
    pub(crate) fn completed(&self) -> u64 {
        self.shared.completed.load(Ordering::Acquire)
    }

    /// BackgroundDownloads that have failed.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Why the last one of these failed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
