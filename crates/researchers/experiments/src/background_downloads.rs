//! Downloads of a C tor client on several circuits, repeated until they are stopped.

use crate::error::{Error, Result};
use lab::{Background, Content, download_while};
use link::Clock;
use onion::Duration;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use terminal::Interrupt;

/// Simultaneous downloads, each on a separate circuit.
pub(crate) const PARALLEL: u64 = 4;

/// The first of them must complete within this time.
const START: Duration = Duration::from_secs(120);

/// Interval between two checks of the downloads, and pause after a failed one.
const STEP: Duration = Duration::from_millis(50);

/// The addresses between which to download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// The client's SOCKS port.
    pub(crate) socks: SocketAddr,
    /// The content server.
    pub(crate) server: SocketAddr,
}

/// The repeated download.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DownloadSpec {
    pub(crate) bytes: u64,
    /// A download that receives nothing for this time has failed.
    pub(crate) patience: Duration,
}

/// Downloads that run until this is dropped.
pub(crate) struct BackgroundDownloads {
    shared: Arc<Shared>,
    _threads: Background,
}

#[derive(Default)]
struct Shared {
    spec: DownloadSpec,
    bytes: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// The last problem.
    problem: Mutex<Option<String>>,
}

impl Shared {
    /// Downloads once and compares the content. Returns the pause after it.
    fn download(
        &self,
        Endpoints { socks, server }: Endpoints,
        isolation: &str,
        seed: u64,
        must_stop: &AtomicBool,
    ) -> Duration {
        let host = server.ip().to_string();
        let DownloadSpec { bytes: len, patience } = self.spec;
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
            Ok(download) => {
                format!("{} of {len} bytes arrived, or the content is wrong", download.received)
            }
            Err(error) => error.to_string(),
        };
        self.failed.fetch_add(1, Ordering::AcqRel);
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
        STEP
    }
}

impl BackgroundDownloads {
    /// Starts the downloads; `name` isolates their circuits from others.
    pub(crate) fn start(endpoints: Endpoints, name: &str, spec: DownloadSpec) -> Result<Self> {
        let shared = Arc::new(Shared { spec, ..Shared::default() });
        let mut threads = Background::default();
        for number in 1..=PARALLEL {
            // C tor replaces a circuit that breaks for the next download.
            let (shared, isolation) = (Arc::clone(&shared), format!("{name} {number}"));
            let mut seed = number;
            let run = move |must_stop: &AtomicBool| {
                let pause = shared.download(endpoints, &isolation, seed, must_stop);
                seed += PARALLEL;
                pause
            };
            threads.add("downloads", run).map_err(Error::clients)?;
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

    /// Received bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// Completed downloads.
    pub(crate) fn completed(&self) -> u64 {
        self.shared.completed.load(Ordering::Acquire)
    }

    /// Failed downloads.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Why the last failed download failed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
