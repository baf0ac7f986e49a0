use super::{ProbePlan, Probed, Prober, Subject};
use crate::directory::{DirectoryEvent, DirectoryThread};
use crate::event::Event;
use crate::netdir::NetDir;
use crate::sources::{Directories, SharedGuards};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, unix_time_s};
use netdoc::RsaId;
use onion::Duration;
use onion::flow::control::CongestionParams;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;

/// Interval at which cancellation is checked.
const STEP: Duration = Duration::from_millis(100);

/// Why probing failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No authority is configured.
    #[error(
        "configuration: no directory authority is given; a client learns of the network from them"
    )]
    NoAuthority,
    /// No usable consensus in time.
    #[error("the network is not known in {seconds} s: {problem}")]
    Unknown {
        /// The time limit.
        seconds: u64,
        /// The last problem.
        problem: String,
    },
    /// The download server's address is not available.
    #[error("configuration: cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The host provides no randomness, certificates, sockets or threads.
    #[error("machine: {0}")]
    Machine(String),
}

pub(super) fn machine(error: impl fmt::Display) -> ProbeError {
    ProbeError::Machine(error.to_string())
}

/// Fetches the network's directory from its authorities and waits until `is_enough` returns true.
/// `identities` are the authorities whose signatures count; if empty, each authority states its
/// own. Documents are stored in `folder`. Gives up when `is_over` returns true.
///
/// # Errors
/// [`ProbeError`] names who is to blame.
pub fn learn(
    authorities: Vec<SocketAddr>,
    directories: Directories,
    identities: BTreeSet<RsaId>,
    folder: PathBuf,
    patience: Duration,
    is_enough: impl Fn(&NetDir) -> bool,
    is_over: impl Fn() -> bool,
) -> Result<Arc<NetDir>, ProbeError> {
    if authorities.is_empty() {
        return Err(ProbeError::NoAuthority);
    }
    std::fs::create_dir_all(&folder).map_err(machine)?;
    let rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
    let guards = SharedGuards::default();
    let directory_thread = DirectoryThread { authorities, identities, directories, folder, guards };
    let (sender, news) = channel();
    let (end, ended) = channel();
    // Ignored after the end.
    let report = move |news| _ = sender.send(news);
    let thread = Builder::new()
        .name("directory".to_owned())
        .spawn(move || directory_thread.run(rng, report, &ended));
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
            Ok(DirectoryEvent::NetDir(netdir)) if is_enough(&netdir) => break Some(netdir),
            Ok(DirectoryEvent::Event(Event::Trouble { reason })) => problem = reason,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    drop(end);
    if found.is_some() {
        // The panic has been reported where it happened.
        let _ = thread.join();
    }
    // Otherwise the thread may still wait for a slow directory and ends afterwards.
    found.ok_or(ProbeError::Unknown { seconds: patience.as_secs(), problem })
}

/// Probes circuits and passes each result to `each`, until all are done, `each` returns false, or
/// `is_over` returns true.
///
/// # Errors
/// [`ProbeError::Machine`]; failures of circuits are part of the results.
pub fn run(
    plan: ProbePlan,
    subjects: Vec<Subject>,
    netdir: &NetDir,
    mut each: impl FnMut(Probed) -> bool,
    is_over: impl Fn() -> bool,
) -> Result<(), ProbeError> {
    let rng = StdRng::try_from_rng(&mut SysRng).map_err(machine)?;
    let now = unix_time_s();
    let tls = TlsConfigs::client().map_err(machine)?;
    let clock = Clock::start();
    let mut prober = Prober::new(plan, subjects, clock.now(), now, rng);
    let params = CongestionParams::from_consensus(|name| netdir.params().get(name));
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
