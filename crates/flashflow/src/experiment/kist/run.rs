//! One run: a relay with one scheduler, first with quiet circuits alone, then with all.

use super::Plan;
use super::client::Clients;
use super::net::{Network, RELAY, SERVERS};
use super::server::Servers;
use super::trace::{Shared, Trace};
use crate::error::Error;
use crate::experiment::telling::median;
use crate::interrupt::Interrupt;
use crate::own_process::OwnProcess;
use crate::own_relay;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Forge, Namespace, Remote, unix_time_s};
use onion::cell::CELL_LEN;
use onion::circuit::NextHop;
use onion::node::Node;
use onion::{Duration, Instant};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Far more than a relay needs to start, or circuits to stand.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often queues are looked at.
const SAMPLE: Duration = Duration::from_millis(100);

/// How finely arrivals of bulk are dated.
const GRAIN: Duration = Duration::from_millis(10);

/// The port of the servers, in a network where nobody else is.
const SERVER_PORT: u16 = 5000;

/// A scheduler of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheduler {
    Vanilla,
    KistLite,
    Kist,
}

impl Scheduler {
    pub(super) const ALL: [Self; 3] = [Self::Vanilla, Self::KistLite, Self::Kist];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "Vanilla",
            Self::KistLite => "KISTLite",
            Self::Kist => "KIST",
        }
    }

    /// As a relay's configuration calls it.
    const fn key(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::KistLite => "kist-lite",
            Self::Kist => "kist",
        }
    }
}

/// What one run has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Each cell of the quiet circuits under load: from server to client.
    pub(super) passage_s: Vec<f64>,
    /// The same without load: its median.
    pub(super) unloaded_passage_s: f64,
    /// From each request of theirs to the first cell of the answer.
    pub(super) first_cell_s: Vec<f64>,
    /// The same without load: its median.
    pub(super) unloaded_first_cell_s: f64,
    /// What all circuits together received.
    pub(super) mbit_per_s: f64,
    /// How long a cell of any circuit waited in the relay's own queues, on average.
    pub(super) circuit_queue_s: Option<f64>,
    /// What waited in the relay's kernel or was under way, on average, in bytes.
    pub(super) kernel_bytes: f64,
    /// Of that, in the narrow place.
    pub(super) narrow_bytes: f64,
    /// Packets that found the narrow place full.
    pub(super) drops: u64,
}

/// A node on a thread of its own, in a network of its own; it ends with this.
struct Actor {
    must_stop: Arc<AtomicBool>,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

impl Actor {
    fn start<N: Node + Send + 'static>(
        namespace: &Namespace,
        node: N,
        clock: Clock,
        tls: TlsConfigs,
        listeners: Vec<TcpListener>,
        shared: &Shared,
        mut between: impl FnMut(&mut N, Instant) + Send + 'static,
    ) -> Result<Self, Error> {
        let mut driver =
            Driver::new(node, clock, tls, listeners, DriverOptions::default()).map_err(broken)?;
        let namespace = namespace.try_clone().map_err(broken)?;
        let (remote, must_stop) = (driver.remote(), Arc::new(AtomicBool::new(false)));
        let (theirs, shared) = (Arc::clone(&must_stop), shared.clone());
        let thread = thread::spawn(move || {
            let fail = |problem: String| _ = shared.lock().failure.get_or_insert(problem);
            if let Err(error) = namespace.enter() {
                fail(error.to_string());
            }
            while !theirs.load(Ordering::Acquire) {
                let soon = driver.now() + GRAIN;
                if let Err(error) = driver.turn(soon) {
                    fail(error.to_string());
                    return;
                }
                let now = driver.now();
                between(driver.node_mut(), now);
            }
        });
        Ok(Self { must_stop, remote, thread: Some(thread) })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Release);
        self.remote.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn broken(problem: impl ToString) -> Error {
    Error::Clients(problem.to_string())
}

fn rng() -> Result<StdRng, Error> {
    StdRng::try_from_rng(&mut SysRng).map_err(|error| Error::Random(error.to_string()))
}

/// Plays one run; `None` if interrupted.
pub(super) fn play(
    plan: &Plan,
    network: &Network,
    scheduler: Scheduler,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Option<Seen>, Error> {
    let clock = Clock::start();
    let relay = start_relay(plan, network, scheduler, folder, clock)?;
    let listening = relay.wait_for("listening", PATIENCE)?;
    let target = own_relay::target(&listening).ok_or_else(|| broken("the relay says nothing"))?;

    let shared = Shared::default();
    let mut seed = [0; 32];
    rng()?.fill_bytes(&mut seed);
    let mut forge = Forge::new(seed, unix_time_s())?;
    let identity = Arc::new(forge.identity()?);
    let address = SocketAddr::from((SERVERS, SERVER_PORT));
    let landing = NextHop::to_own(&identity, address);
    let listener = network.servers.run(|| TcpListener::bind(address));
    let listener = listener.and_then(|listener| listener).map_err(broken)?;
    let servers = Servers::new(identity, rng()?, shared.clone());
    let tls = TlsConfigs::new(&forge)?;
    let none = |_: &mut Servers, _: Instant| {};
    let _servers =
        Actor::start(&network.servers, servers, clock, tls, vec![listener], &shared, none)?;

    let clients = Clients::new(plan.load, target, landing, rng()?, unix_time_s(), shared.clone());
    let has_begun = Arc::new(AtomicBool::new(false));
    let begin = Arc::clone(&has_begun);
    let mut is_bulk = false;
    let between = move |clients: &mut Clients, now: Instant| {
        if !is_bulk && begin.load(Ordering::Acquire) {
            is_bulk = true;
            clients.start_bulk();
        }
        clients.note(now);
    };
    let tls = TlsConfigs::new(&forge)?;
    let _clients =
        Actor::start(&network.clients, clients, clock, tls, Vec::new(), &shared, between)?;
    let deadline = clock.now() + PATIENCE;
    while !shared.lock().is_ready {
        check(&shared.lock())?;
        if clock.now() >= deadline {
            return Err(broken("their circuits do not stand in time"));
        }
        if interrupt.wait(Duration::from_millis(20)) {
            return Ok(None);
        }
    }

    let alone = clock.now();
    if interrupt.wait(plan.alone) {
        return Ok(None);
    }
    let loaded = clock.now();
    has_begun.store(true, Ordering::Release);
    if interrupt.wait(plan.warm_up) {
        return Ok(None);
    }
    let (from, drops_before) = (clock.now(), network.narrow_queue().map_or(0, |(_, drops)| drops));
    let (mut kernel, mut narrow, mut drops) = (Vec::new(), Vec::new(), drops_before);
    while clock.now() < from + plan.length {
        if interrupt.wait(SAMPLE) {
            return Ok(None);
        }
        check(&shared.lock())?;
        kernel.extend(network.kernel_queue(target.address.port()));
        if let Some((backlog, dropped)) = network.narrow_queue() {
            narrow.push(backlog);
            drops = dropped;
        }
    }
    let to = clock.now();
    // What was sent last may still be under way, for seconds if the scheduler is bad.
    if interrupt.wait(plan.warm_up) {
        return Ok(None);
    }
    let trace = shared.lock();
    check(&trace)?;
    let seen = Seen {
        kernel_bytes: mean(&kernel),
        narrow_bytes: mean(&narrow),
        drops: drops - drops_before,
        circuit_queue_s: waited(&relay, clock, from, to),
        ..seen(&trace, (alone, loaded), (from, to)).ok_or_else(|| broken("no answers came"))?
    };
    Ok(Some(seen))
}

fn check(trace: &Trace) -> Result<(), Error> {
    trace.failure.as_ref().map_or(Ok(()), |failure| Err(broken(failure)))
}

fn start_relay(
    plan: &Plan,
    network: &Network,
    scheduler: Scheduler,
    folder: &Path,
    clock: Clock,
) -> Result<OwnProcess, Error> {
    let file = folder.join("relay.toml");
    let configuration = format!(
        "nickname = \"kist\"\naddress = \"{RELAY}\"\nkeys = \"keys\"\nscheduler = \"{}\"\n\
         scheduler_interval_ms = {}\n",
        scheduler.key(),
        plan.interval.as_millis(),
    );
    fs::write(&file, configuration).map_err(|source| Error::File {
        what: "write",
        path: file.clone(),
        source,
    })?;
    let arguments =
        ["relay".as_ref(), "--config".as_ref(), file.as_os_str(), "--tell-load".as_ref()];
    let started = network.relay.run(|| OwnProcess::start("relay", arguments, clock));
    started.map_err(broken)?
}

/// How long a cell waited in the relay's queues, on average: all waiting over all cells (Little).
fn waited(relay: &OwnProcess, clock: Clock, from: Instant, to: Instant) -> Option<f64> {
    let mut told = Vec::new();
    while let Some((at, value)) = relay.hear(clock.now()) {
        if value["type"] == "load" && (from..to).contains(&at) {
            told.push((value["client_bytes"].as_f64()?, value["waited_cell_s"].as_f64()?));
        }
    }
    let ((bytes, waited), (bytes_then, waited_then)) = (told.last()?, told.first()?);
    #[expect(clippy::cast_precision_loss, reason = "514")]
    let cells = (bytes - bytes_then) / CELL_LEN as f64;
    (cells > 0.0).then(|| (waited - waited_then) / cells)
}

fn seen(trace: &Trace, alone: (Instant, Instant), loaded: (Instant, Instant)) -> Option<Seen> {
    let quiet = || trace.quiet.iter();
    let passages = quiet().flat_map(|quiet| quiet.passages_s(alone.0, alone.1));
    let unloaded_passage_s = median(passages)?;
    let passages = quiet().flat_map(|quiet| quiet.passages_s(loaded.0, loaded.1));
    let first = quiet().flat_map(|quiet| quiet.first_cells_s(alone.0, alone.1));
    #[expect(clippy::cast_precision_loss, reason = "514")]
    let bits = (CELL_LEN * 8) as f64;
    let seen = Seen {
        passage_s: passages.collect(),
        unloaded_passage_s,
        first_cell_s: quiet().flat_map(|quiet| quiet.first_cells_s(loaded.0, loaded.1)).collect(),
        unloaded_first_cell_s: median(first)?,
        mbit_per_s: trace.cells_per_s(loaded.0, loaded.1) * bits * 1e-6,
        ..Seen::default()
    };
    (!seen.passage_s.is_empty() && !seen.first_cell_s.is_empty()).then_some(seen)
}

#[expect(clippy::cast_precision_loss, reason = "queues are bounded")]
fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}
