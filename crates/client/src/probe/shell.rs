use super::{ProbePlan, Probed, Prober, Subject};
use crate::directory::{Following, News};
use crate::event::Event;
use crate::sources::{Directories, SharedGuards};
use crate::view::View;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, unix_time_s};
use netdoc::Fingerprint;
use onion::Duration;
use onion::flow::control::CongestionParams;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;

/// How soon somebody who wants to end is heard.
const STEP: Duration = Duration::from_millis(100);

/// Why nothing can be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No authority is configured.
    #[error(
        "configuration: no directory authority is given; a client learns of the network from them"
    )]
    NoAuthority,
    /// The network did not become known.
    #[error("the network is not known in {seconds} s: {problem}")]
    Unknown {
        /// How long it was waited for.
        seconds: u64,
        /// What was wrong last.
        problem: String,
    },
    /// The server of downloads cannot listen there.
    #[error("configuration: cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The machine gives no randomness, certificates, sockets or threads.
    #[error("machine: {0}")]
    Machine(String),
}

pub(super) fn machine(error: impl fmt::Display) -> ProbeError {
    ProbeError::Machine(error.to_string())
}

/// Learns of a network from its authorities, by the ways that `directories` knows; waits until enough of it is known. `identities` are those whose signatures count; if there
/// are none, those of whom the authorities say that they are. What is fetched is kept in the folder. `is_over` is asked now and then: it
/// gives up.
///
/// # Errors
/// [`ProbeError`] says who is to blame.
pub fn learn(
    authorities: Vec<SocketAddr>,
    directories: Directories,
    identities: BTreeSet<Fingerprint>,
    folder: PathBuf,
    patience: Duration,
    is_enough: impl Fn(&View) -> bool,
    is_over: impl Fn() -> bool,
) -> Result<Arc<View>, ProbeError> {
    if authorities.is_empty() {
        return Err(ProbeError::NoAuthority);
    }
    std::fs::create_dir_all(&folder).map_err(machine)?;
    let rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
    let guards = SharedGuards::default();
    let following = Following { authorities, identities, directories, folder, guards };
    let (sender, news) = channel();
    let (end, ended) = channel();
    // Whoever has ended needs no news.
    let tell = move |news| _ = sender.send(news);
    let thread =
        Builder::new().name("directory".to_owned()).spawn(move || following.run(rng, tell, &ended));
    let thread = thread.map_err(machine)?;
    let clock = Clock::start();
    let deadline = clock.now() + patience;
    let mut problem = "too few relays are listed".to_owned();
    let found = loop {
        let left = deadline.saturating_since(clock.now());
        if is_over() || left == Duration::ZERO {
            break None;
        }
        match news.recv_timeout(left.min(STEP)) {
            Ok(News::View(view)) if is_enough(&view) => break Some(view),
            Ok(News::Event(Event::Trouble(trouble))) => problem = trouble,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    drop(end);
    if found.is_some() {
        // A panic has been told of where it happened.
        let _ = thread.join();
    }
    // Otherwise it may wait for a slow directory still, and ends by itself after that.
    found.ok_or(ProbeError::Unknown { seconds: patience.as_secs(), problem })
}

/// Probes circuits, and tells of each as it is done, until all are or `each` returns false. `is_over` is asked now and then.
///
/// # Errors
/// [`ProbeError::Machine`]; what goes wrong with circuits is in what is told of them.
pub fn run(
    plan: ProbePlan,
    subjects: Vec<Subject>,
    view: &View,
    mut each: impl FnMut(Probed) -> bool,
    is_over: impl Fn() -> bool,
) -> Result<(), ProbeError> {
    let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    let now = unix_time_s();
    let tls = TlsConfigs::nameless(seed, now).map_err(machine)?;
    let clock = Clock::start();
    let mut prober = Prober::new(plan, subjects, clock.now(), now, rng);
    let params = CongestionParams::from_consensus(|name| view.params().get(name));
    prober.set_congestion(Arc::new(params));
    let options = DriverOptions::default();
    let mut driver = Driver::new(prober, clock, tls, Vec::new(), options).map_err(machine)?;
    loop {
        while let Some(probed) = driver.node_mut().poll_probed() {
            if !each(probed) {
                return Ok(());
            }
        }
        if driver.node().is_done() || is_over() {
            return Ok(());
        }
        driver.turn(driver.now() + STEP).map_err(machine)?;
    }
}
