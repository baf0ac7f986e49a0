//! The summary of a run.

use super::files::asked_bytes;
use super::transfers::{Transfers, transfers};
use crate::network::Network;
use crate::run::{Outcome, Plan};
use schemars::JsonSchema;
use serde::Serialize;
use sim::world::{Ending, HostFigures, Record};

/// Downloads of one size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SizeFigures {
    /// The size of the download.
    pub bytes: u32,
    /// Completed downloads.
    pub complete: usize,
    /// Downloads that timed out.
    pub timed_out: usize,
    /// Downloads whose circuits were all lost.
    pub lost: usize,
    /// Downloads running at the end.
    pub under_way: usize,
    /// Median time to the first byte of all downloads that began, in seconds; `None` if too few are known
    /// ([`Waits`](super::Waits)).
    pub first_byte_median_s: Option<f64>,
    /// Median and 95th percentile of the time to the last byte, in seconds, in the same way.
    pub last_byte_median_s: Option<f64>,
    /// See `last_byte_median_s`.
    pub last_byte_p95_s: Option<f64>,
}

/// The summary of a run. Speeds are of real time: everything else is the same in each run with the same seed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// Real time in all, including the construction of the world.
    pub wall_s: f64,
    /// Simulated time.
    pub simulated_s: f64,
    /// Real time per simulated second after the warm-up; from the beginning if there was no time after it.
    pub wall_s_per_simulated_s: f64,
    /// Peak memory of the process.
    pub peak_memory_mib: Option<f64>,
    /// The number of threads.
    pub threads: u16,
    /// The seed.
    pub seed: u64,
    /// Cell hops over links, in all: a cell through three relays has at most four.
    pub cell_hops: u64,
    /// Real time per hop, not divided by threads.
    pub ns_per_cell_hop: f64,
    /// Events of all kernels.
    pub events: u64,
    /// Relays, clients, servers.
    pub relays: usize,
    /// See `relays`.
    pub clients: usize,
    /// See `relays`.
    pub servers: usize,
    /// The relays' average rate to relays, clients and servers after the warm-up, including headers.
    pub relays_sent_gbit_per_s: f64,
    /// Bytes received by clients' streams, from the beginning.
    pub goodput_gbit_per_s: f64,
    /// The share of the relays' upload capacity used after the warm-up.
    pub utilisation: f64,
    /// Transfers of users by models: ended, completed.
    pub model_streams: usize,
    /// See `model_streams`.
    pub model_streams_complete: usize,
    /// Cells' mean delay in relays' queues.
    pub queue_ms: f64,
    /// Cells' mean delay in relays' kernels before the first transmission: with [`queue_ms`](Self::queue_ms) it
    /// is a relay's congestion as defined in KIST's paper. Waiting for the host's upload counts, but not with
    /// Shadow's TCP.
    pub kernel_queue_ms: f64,
    /// Lost flights of TCP, and those among them that a full download queue has dropped.
    pub lost_flights: u64,
    /// See `lost_flights`.
    pub dropped_flights: u64,
    /// The error of weights: the paper's equation 6 (NWE).
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
        let cell_hops = sum(&|host| host.cells);
        let from = plan.warm_up_s as usize;
        let sent_bytes: u64 =
            relays.iter().flat_map(|relay| relay.sent_bytes.iter().skip(from)).sum();
        let seconds = relays.iter().map(|relay| relay.sent_bytes.len()).max().unwrap_or(0);
        let seconds = seconds.saturating_sub(from).max(1) as f64;
        let sent = sent_bytes as f64 * 8.0 / seconds;
        let could: f64 = network.capacities().iter().sum();
        let relayed: u64 = relays.iter().map(|relay| relay.relayed_bytes / 514).sum();
        let mean_ms = |of: fn(&HostFigures) -> f64| {
            relays.iter().map(of).sum::<f64>() * 1e3 / relayed.max(1) as f64
        };
        let is_over = |record: &&Record| record.size.is_none() && record.ending != Ending::UnderWay;
        let models = outcome.records.iter().filter(is_over);
        Self {
            wall_s,
            simulated_s: outcome.simulated_s,
            wall_s_per_simulated_s: warm_wall / warm_s.max(1e-9),
            peak_memory_mib: peak_memory_mib(),
            threads: plan.threads,
            seed: plan.seed,
            cell_hops,
            ns_per_cell_hop: wall_s * 1e9 / cell_hops.max(1) as f64,
            events: sum(&|host| host.events),
            relays: network.relays.len(),
            clients: network.clients.len(),
            servers: network.servers.len(),
            relays_sent_gbit_per_s: sent * 1e-9,
            goodput_gbit_per_s: sum(&|host| host.received_bytes) as f64 * 8e-9
                / outcome.simulated_s,
            utilisation: sent / could.max(1.0),
            model_streams: models.clone().count(),
            model_streams_complete: models.filter(|model| model.ending == Ending::Complete).count(),
            queue_ms: mean_ms(|host| host.waited_cell_s),
            kernel_queue_ms: mean_ms(|host| host.kernel_waited_cell_s),
            lost_flights: sum(&|host| host.lost_flights + host.dropped_flights),
            dropped_flights: sum(&|host| host.dropped_flights),
            network_weight_error: network.weight_error().unwrap_or(f64::NAN),
            downloads: downloads(network, outcome),
            fingerprint,
        }
    }
}

fn downloads(network: &Network, outcome: &Outcome) -> Vec<SizeFigures> {
    let count = |bytes: u32, ending: Ending| {
        let asked = |record: &&Record| {
            record.ending == ending && asked_bytes(network, record) == Some(bytes)
        };
        outcome.records.iter().filter(asked).count()
    };
    let figures = |size: Transfers| {
        let last = size.last_byte();
        let finite = |time: Option<f64>| time.filter(|time| time.is_finite());
        SizeFigures {
            bytes: size.bytes,
            complete: size.last_byte_s.len(),
            timed_out: count(size.bytes, Ending::TimedOut),
            lost: count(size.bytes, Ending::Lost),
            under_way: size.under_way(),
            first_byte_median_s: finite(size.first_byte().median()),
            last_byte_median_s: finite(last.median()),
            last_byte_p95_s: finite(last.quantile(0.95)),
        }
    };
    transfers(network, outcome, 0).into_iter().map(figures).collect()
}

/// Peak memory of this process so far, as reported by Linux.
#[must_use]
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}
