//! Downloads of a stock client, one after another, for as long as they are wanted.

use crate::error::Error;
use lab::{Content, download};
use link::Clock;
use onion::{Duration, Rate};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use terminal::Interrupt;

/// Downloads at the same time, each on a circuit of its own.
const AT_ONCE: u64 = 4;

/// How long each takes if all come as fast as the client wants: long enough for requests to be rare.
const EACH_S: u64 = 2;

/// A byte has to come at least this often; and all have to flow after so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether all flow.
const STEP: Duration = Duration::from_millis(50);

/// Downloads until it is dropped.
pub(super) struct Downloading {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Bytes of each.
    length: u64,
    must_stop: AtomicBool,
    /// Completed downloads.
    done: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn fail(&self, problem: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Downloads one after another, each compared with what it should be.
    fn repeat(&self, socks: SocketAddr, server: SocketAddr, name: &str, first_seed: u64) {
        let host = server.ip().to_string();
        let from = (host.as_str(), server.port());
        for seed in (first_seed..).step_by(usize::try_from(AT_ONCE).unwrap_or(1)) {
            if self.must_stop.load(Ordering::Acquire) {
                return;
            }
            let content = Content { len: self.length, seed };
            match download(socks, from, content, name, PATIENCE) {
                Ok(download) if download.is_right => drop(self.done.fetch_add(1, Ordering::AcqRel)),
                Ok(download) => {
                    let (received, length) = (download.received, self.length);
                    return self
                        .fail(format!("of {length} bytes {received} came, and not all right"));
                }
                Err(error) => return self.fail(error.to_string()),
            }
        }
    }
}

impl Downloading {
    /// Starts, and waits until as many have completed as run at once. The client's rate is
    /// `demand`; `name` isolates its circuits from others.
    pub(super) fn start(
        (socks, server): (SocketAddr, SocketAddr),
        demand: Rate,
        name: &str,
        clock: Clock,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let length = demand.as_byte_per_s() * EACH_S / AT_ONCE;
        let shared = Arc::new(Shared { length, ..Shared::default() });
        let mut this = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for number in 1..=AT_ONCE {
            let (theirs, name) = (Arc::clone(&shared), format!("{name} {number}"));
            let run = move || theirs.repeat(socks, server, &name, number);
            let thread = thread::Builder::new().name("downloads".to_owned()).spawn(run);
            this.threads.push(thread.map_err(|error| Error::Clients(error.to_string()))?);
        }
        let deadline = clock.now() + PATIENCE;
        while shared.done.load(Ordering::Acquire) < AT_ONCE {
            if let Some(problem) = shared.failure() {
                return Err(Error::Clients(problem));
            }
            if clock.now() > deadline {
                return Err(Error::Clients("a stock client's downloads do not come".to_owned()));
            }
            if interrupt.wait(STEP) {
                break;
            }
        }
        Ok(this)
    }

    /// Why a download failed, if one did.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    /// Downloads that have completed so far.
    pub(super) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Acquire)
    }
}

impl Drop for Downloading {
    fn drop(&mut self) {
        self.shared.must_stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}
