//! One run: a relay with one scheduler, first with quiet circuits only, then with bulk circuits as well.

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
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::Range;
use std::path::Path;
use terminal::Interrupt;

/// The timeout for starting the relay and for building circuits.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval between samples of the queues.
const SAMPLE: Duration = Duration::from_millis(100);

/// A scheduler of links.
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

    /// Its name in a relay's configuration.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::KistLite => "kist-lite",
            Self::Kist => "kist",
        }
    }
}

/// The figures of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RunFigures {
    /// Times from server to client under load, of the first and the last cell of each answer on quiet circuits.
    pub(super) passage_s: Vec<f64>,
    /// The median of these times without load.
    pub(super) unloaded_passage_s: f64,
    /// Times under load from each request to the first cell of its answer.
    pub(super) first_cell_s: Vec<f64>,
    /// The median of these times without load.
    pub(super) unloaded_first_cell_s: f64,
    /// The throughput of all circuits.
    pub(super) mbit_per_s: f64,
    /// The mean time of a cell in the relay's own queues.
    pub(super) circuit_queue_s: Option<f64>,
    /// The mean number of unacknowledged bytes in the relay's kernel.
    pub(super) kernel_bytes: f64,
    /// The mean number of bytes in the bottleneck's queue.
    pub(super) narrow_bytes: f64,
    /// Packets that the bottleneck dropped.
    pub(super) drops: u64,
}

/// Performs one run; `None` if interrupted.
pub(super) fn run(
    plan: &KistSettings,
    network: &Network,
    scheduler: Scheduler,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Option<RunFigures>> {
    let clock = Clock::start();
    let relay = start_relay(plan, network, scheduler, folder, clock)?;
    let listening = relay.wait_for("listening", PATIENCE)?;
    let target = OwnRelay::target_of(&listening)
        .ok_or_else(|| Error::clients("the relay reports no address"))?;

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
            return Err(Error::clients("timeout while building circuits"));
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
    // All bulk transfers start at once, so that no TCP connection has a head start.
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
    // The last answers may be queued for seconds.
    if interrupt.wait(plan.warm_up) {
        return Ok(None);
    }
    let trace = shared.lock();
    check(&trace)?;
    let figures = answer_figures(&trace, &(alone..loaded), &(from..to));
    Ok(Some(RunFigures {
        kernel_bytes: mean(&kernel),
        narrow_bytes: mean(&narrow),
        drops: drops - drops_before,
        mbit_per_s: carried_mbit_per_s(received - received_before, to - from),
        circuit_queue_s: mean_queue_time_s(&relay, clock, &(from..to)),
        ..figures.ok_or_else(|| Error::clients("no answer arrived"))?
    }))
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

/// A cell's mean time in the relay's queues: the total time of all cells over their number (Little's law).
fn mean_queue_time_s(relay: &OwnProcess, clock: Clock, period: &Range<Instant>) -> Option<f64> {
    let mut reports = Vec::new();
    while let Some((at, value)) = relay.next_output(clock.now()) {
        if value["type"] == "load" && period.contains(&at) {
            reports.push((value["client_bytes"].as_f64()?, value["waited_cell_s"].as_f64()?));
        }
    }
    let ((bytes, waited), (bytes_before, waited_before)) = (reports.last()?, reports.first()?);
    #[expect(clippy::cast_precision_loss, reason = "514")]
    let cells = (bytes - bytes_before) / CELL_LEN as f64;
    (cells > 0.0).then(|| (waited - waited_before) / cells)
}

/// The rate on the wire of the cells that carried these stream bytes, as if all cells were full.
#[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 bytes")]
fn carried_mbit_per_s(received_bytes: u64, time: Duration) -> f64 {
    let cells = received_bytes as f64 / MAX_DATA_LEN as f64;
    cells * (CELL_LEN * 8) as f64 * 1e-6 / time.as_secs_f64()
}

fn answer_figures(
    trace: &Trace,
    alone: &Range<Instant>,
    loaded: &Range<Instant>,
) -> Option<RunFigures> {
    let figures = RunFigures {
        passage_s: trace.passages_s(loaded),
        unloaded_passage_s: median(trace.passages_s(alone))?,
        first_cell_s: trace.first_cells_s(loaded),
        unloaded_first_cell_s: median(trace.first_cells_s(alone))?,
        ..RunFigures::default()
    };
    (!figures.passage_s.is_empty() && !figures.first_cell_s.is_empty()).then_some(figures)
}

#[expect(clippy::cast_precision_loss, reason = "queues are bounded")]
fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}
