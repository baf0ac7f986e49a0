//! One run: a relay with one scheduler, first with quiet circuits alone, then with all.

use super::net::{Network, RELAY};
use super::server::Servers;
use super::trace::{SharedTrace, Trace};
use super::{KistSettings, client};
use crate::error::{Error, Result};
use crate::reporting::median;
use lab::load::Nodes;
use lab::{OwnProcess, OwnRelay};
use link::Clock;
use onion::cell::CELL_LEN;
use onion::cell::relay::MAX_DATA_LEN;
use onion::{Duration, Instant};
use std::fs;
use std::ops::Range;
use std::path::Path;
use terminal::Interrupt;

/// Far more than a relay needs to start, or circuits to stand.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often queues are looked at.
const SAMPLE: Duration = Duration::from_millis(100);

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
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::KistLite => "kist-lite",
            Self::Kist => "kist",
        }
    }
}

/// What one run has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct RunFigures {
    /// The first and the last cell of each of the quiet circuits' answers under load: from server to
    /// client.
    pub(super) passage_s: Vec<f64>,
    /// The median without load.
    pub(super) unloaded_passage_s: f64,
    /// From each request of theirs to the first cell of the answer.
    pub(super) first_cell_s: Vec<f64>,
    /// The median without load.
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

/// Plays one run; `None` if interrupted.
pub(super) fn play(
    plan: &KistSettings,
    network: &Network,
    scheduler: Scheduler,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Option<RunFigures>> {
    let clock = Clock::start();
    let relay = start_relay(plan, network, scheduler, folder, clock)?;
    let listening = relay.wait_for("listening", PATIENCE)?;
    let target =
        OwnRelay::target_of(&listening).ok_or_else(|| Error::clients("the relay says nothing"))?;

    let mut nodes = Nodes::new(clock)?;
    let shared = &SharedTrace::default();
    let servers = Servers::start(&network.servers, &mut nodes, shared)?;
    let start = |number| {
        let (namespace, trace) = (&network.clients, shared.clone());
        client::start(namespace, &nodes, trace, target, &servers, number, plan.load)
    };
    let clients = (0..plan.load.links).map(start).collect::<Result<Vec<_>, _>>()?;
    let deadline = clock.now() + PATIENCE;
    while shared.lock().ready < plan.load.links {
        check(&shared.lock())?;
        if clock.now() >= deadline {
            return Err(Error::clients("their circuits are not open in time"));
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
    // All begin at once, and none of their TCP connections has a start over the others.
    shared.lock().is_loaded = true;
    clients.iter().for_each(|client| client.handle().wake());
    if interrupt.wait(plan.warm_up) {
        return Ok(None);
    }
    let received = || shared.lock().received_bytes.values().sum::<u64>();
    let (from, received_before) = (clock.now(), received());
    let drops_before = network.narrow_queue().map_or(0, |(_, drops)| drops);
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
    let (to, received) = (clock.now(), received());
    // What was sent last may still be under way, for seconds if the scheduler is bad.
    if interrupt.wait(plan.warm_up) {
        return Ok(None);
    }
    let trace = shared.lock();
    check(&trace)?;
    let seen = RunFigures {
        kernel_bytes: mean(&kernel),
        narrow_bytes: mean(&narrow),
        drops: drops - drops_before,
        mbit_per_s: carried_mbit_per_s(received - received_before, to - from),
        circuit_queue_s: waited(&relay, clock, from, to),
        ..seen(&trace, alone..loaded, from..to).ok_or_else(|| Error::clients("no answers came"))?
    };
    Ok(Some(seen))
}

fn check(trace: &Trace) -> Result<()> {
    trace.failure.as_ref().map_or(Ok(()), |failure| Err(Error::clients(failure)))
}

fn start_relay(
    plan: &KistSettings,
    network: &Network,
    scheduler: Scheduler,
    folder: &Path,
    clock: Clock,
) -> Result<OwnProcess> {
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
        ["relay".as_ref(), "--config".as_ref(), file.as_os_str(), "--print-load".as_ref()];
    let started = network.relay.run(|| OwnProcess::start("relay", arguments, None, clock));
    Ok(started.map_err(Error::clients)??)
}

/// How long a cell waited in the relay's queues, on average: all waiting over all cells (Little).
fn waited(relay: &OwnProcess, clock: Clock, from: Instant, to: Instant) -> Option<f64> {
    let mut told = Vec::new();
    while let Some((at, value)) = relay.next_output(clock.now()) {
        if value["type"] == "load" && (from..to).contains(&at) {
            told.push((value["client_bytes"].as_f64()?, value["waited_cell_s"].as_f64()?));
        }
    }
    let ((bytes, waited), (bytes_then, waited_then)) = (told.last()?, told.first()?);
    #[expect(clippy::cast_precision_loss, reason = "514")]
    let cells = (bytes - bytes_then) / CELL_LEN as f64;
    (cells > 0.0).then(|| (waited - waited_then) / cells)
}

/// As cells on the wire, of what streams received: a little less than there was, since not all cells
/// are full.
#[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 bytes")]
fn carried_mbit_per_s(received_bytes: u64, time: Duration) -> f64 {
    let cells = received_bytes as f64 / MAX_DATA_LEN as f64;
    cells * (CELL_LEN * 8) as f64 * 1e-6 / time.as_secs_f64()
}

fn seen(trace: &Trace, alone: Range<Instant>, loaded: Range<Instant>) -> Option<RunFigures> {
    let seen = RunFigures {
        passage_s: trace.passages_s(loaded.start, loaded.end),
        unloaded_passage_s: median(trace.passages_s(alone.start, alone.end))?,
        first_cell_s: trace.first_cells_s(loaded.start, loaded.end),
        unloaded_first_cell_s: median(trace.first_cells_s(alone.start, alone.end))?,
        ..RunFigures::default()
    };
    (!seen.passage_s.is_empty() && !seen.first_cell_s.is_empty()).then_some(seen)
}

#[expect(clippy::cast_precision_loss, reason = "queues are bounded")]
fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}
