//! What a run comes to in a few numbers.

use super::files::asked_bytes;
use crate::network::Network;
use crate::run::{Outcome, Plan};
use serde::Serialize;
use sim::world::{Ending, HostFigures};
use std::collections::BTreeMap;

/// Downloads of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeFigures {
    /// Of the download.
    pub bytes: u32,
    /// That came whole.
    pub complete: usize,
    /// That did not in time.
    pub timed_out: usize,
    /// Whose circuits were all lost.
    pub lost: usize,
    /// Median time to the first byte, in seconds.
    pub first_byte_median_s: Option<f64>,
    /// Median and 95th percentile of the time to the last, in seconds.
    pub last_byte_median_s: Option<f64>,
    /// See `last_byte_median_s`.
    pub last_byte_p95_s: Option<f64>,
}

/// A run in a few numbers. Speeds are of real time: all else is the same in each run with the same seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Real time in all, with the making of the world.
    pub wall_s: f64,
    /// Simulated.
    pub simulated_s: f64,
    /// Real time for a simulated second after the warm-up; from the beginning if there was no time after it.
    pub wall_s_per_simulated_s: f64,
    /// Most memory that the process has had.
    pub peak_memory_mib: Option<f64>,
    /// Threads that ran.
    pub threads: u16,
    /// The run's seed.
    pub seed: u64,
    /// Cells that came over a link, all together: a cell through three relays has four hops at most.
    pub cell_hops: u64,
    /// Real time for one, threads not counted.
    pub ns_per_cell_hop: f64,
    /// What kernels have done, all together.
    pub events: u64,
    /// Relays, clients, servers.
    pub relays: usize,
    /// See `relays`.
    pub clients: usize,
    /// See `relays`.
    pub servers: usize,
    /// What relays have sent to relays, clients and servers on average after the warm-up, with all headers.
    pub relays_sent_gbit_per_s: f64,
    /// What clients' streams have got, from the beginning.
    pub goodput_gbit_per_s: f64,
    /// How much of what relays could send they have sent after the warm-up.
    pub utilisation: f64,
    /// Transfers of models' users: ended, complete.
    pub model_streams: usize,
    /// See `model_streams`.
    pub model_streams_complete: usize,
    /// Cells' mean time in relays' queues.
    pub queue_ms: f64,
    /// Flights of TCP that got lost, and those of them that a full way down has dropped.
    pub lost_flights: u64,
    /// See `lost_flights`.
    pub dropped_flights: u64,
    /// How far weights are from capacities: the paper's equation 6 (NWE).
    pub network_weight_error: f64,
    /// Benchmarks, by size.
    pub downloads: Vec<SizeFigures>,
    /// Of all files of the run: the same for the same network and seed, whatever the number of threads.
    pub fingerprint: String,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
impl Summary {
    pub(super) fn new(
        network: &Network,
        plan: &Plan,
        outcome: &Outcome,
        fingerprint: String,
    ) -> Self {
        let wall_s = outcome.wall.as_secs_f64();
        let (warm_wall, warm_s) = outcome
            .after_warm_up
            .filter(|(_, seconds)| *seconds > 0.0)
            .map_or((wall_s, outcome.simulated_s), |(wall, seconds)| (wall.as_secs_f64(), seconds));
        let relays = &outcome.figures[..network.relays.len()];
        let sum =
            |what: &dyn Fn(&HostFigures) -> u64| outcome.figures.iter().map(what).sum::<u64>();
        let cell_hops = sum(&|it| it.cells);
        let from = plan.warm_up_s as usize;
        let sent_bytes: u64 = relays.iter().flat_map(|it| it.sent_bytes.iter().skip(from)).sum();
        let seconds = relays.iter().map(|it| it.sent_bytes.len()).max().unwrap_or(0);
        let seconds = seconds.saturating_sub(from).max(1) as f64;
        let sent = sent_bytes as f64 * 8.0 / seconds;
        let could: f64 = network.capacities().iter().sum();
        let waited: f64 = relays.iter().map(|it| it.waited_cell_s).sum();
        let relayed: u64 = relays.iter().map(|it| it.relayed_bytes / 514).sum();
        let models = outcome.records.iter().filter(|it| it.size.is_none());
        Self {
            wall_s,
            simulated_s: outcome.simulated_s,
            wall_s_per_simulated_s: warm_wall / warm_s.max(1e-9),
            peak_memory_mib: peak_memory_mib(),
            threads: plan.threads,
            seed: plan.seed,
            cell_hops,
            ns_per_cell_hop: wall_s * 1e9 / cell_hops.max(1) as f64,
            events: sum(&|it| it.events),
            relays: network.relays.len(),
            clients: network.clients.len(),
            servers: network.servers.len(),
            relays_sent_gbit_per_s: sent * 1e-9,
            goodput_gbit_per_s: sum(&|it| it.received_bytes) as f64 * 8e-9 / outcome.simulated_s,
            utilisation: sent / could.max(1.0),
            model_streams: models.clone().count(),
            model_streams_complete: models.filter(|it| it.ending == Ending::Complete).count(),
            queue_ms: waited * 1e3 / relayed.max(1) as f64,
            lost_flights: sum(&|it| it.lost_flights + it.dropped_flights),
            dropped_flights: sum(&|it| it.dropped_flights),
            network_weight_error: network.weight_error().unwrap_or(f64::NAN),
            downloads: downloads(network, outcome),
            fingerprint,
        }
    }
}

fn downloads(network: &Network, outcome: &Outcome) -> Vec<SizeFigures> {
    let mut by_size: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for record in &outcome.records {
        if let Some(bytes) = asked_bytes(network, record) {
            by_size.entry(bytes).or_default().push(record);
        }
    }
    let figures = |(bytes, records): (u32, Vec<&sim::world::Record>)| {
        let count = |ending| records.iter().filter(|it| it.ending == ending).count();
        let sorted = |times: Vec<onion::Duration>| {
            let mut times: Vec<f64> = times.iter().map(onion::Duration::as_secs_f64).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let whole = records.iter().filter(|it| it.ending == Ending::Complete);
        let last = sorted(whole.clone().filter_map(|it| it.last_byte).collect());
        let first = sorted(whole.filter_map(|it| it.first_byte).collect());
        SizeFigures {
            bytes,
            complete: count(Ending::Complete),
            timed_out: count(Ending::TimedOut),
            lost: count(Ending::Lost),
            first_byte_median_s: percentile(&first, 50),
            last_byte_median_s: percentile(&last, 50),
            last_byte_p95_s: percentile(&last, 95),
        }
    };
    by_size.into_iter().map(figures).collect()
}

/// The least of these sorted values that so many of a hundred do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied()
}

/// Most memory that this process has had so far, as Linux tells it.
#[must_use]
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}
