//! The lines of the benchmarks with `--json`.

use lab::wan::{Counts, UnintendedLosses};
use schemars::JsonSchema;
use serde::Serialize;

/// A line of `bench measurer`. CPU times are of a measurer, and of a bare TLS pump with records of the same lengths.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MeasurerLine {
    /// One run.
    Run {
        /// Counted from one.
        run: u32,
        /// The measured rate.
        rate_mbit_per_s: f64,
        /// CPU seconds for 10⁹ bytes.
        measurer_cpu_s_per_gb: f64,
        /// CPU seconds for 10⁹ bytes.
        pump_cpu_s_per_gb: f64,
        /// The measurer's divided by the pump's.
        ratio: f64,
        /// Mean length of a TLS record.
        sent_record_bytes: usize,
        /// Mean length of a TLS record.
        received_record_bytes: usize,
    },
    /// The medians of all runs, last.
    Summary {
        /// The measurer's divided by the pump's.
        ratio: f64,
        /// CPU seconds for 10⁹ bytes.
        measurer_cpu_s_per_gb: f64,
        /// CPU seconds for 10⁹ bytes.
        pump_cpu_s_per_gb: f64,
        /// Number of runs.
        runs: u32,
        /// Length of a run.
        seconds: u32,
    },
}

/// One relay in one run of `bench echo` or `bench relay`, without the first and the last second.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RelayRun {
    /// Counted from one.
    pub(super) run: u32,
    /// `tor` or `ours`.
    pub(super) relay: &'static str,
    /// `transit` or `echo`.
    pub(super) mode: &'static str,
    /// The sockets, if they were given.
    pub(super) sockets: Option<u32>,
    /// Traffic in one direction for a second of CPU time.
    pub(super) gbit_per_cpu_s: f64,
    /// The estimate.
    pub(super) rate_mbit_per_s: f64,
    /// CPU time as a share of one core.
    pub(super) relay_cpu_share: f64,
    /// Bytes relayed in one direction.
    pub(super) bytes: u64,
    /// CPU time of the relay.
    pub(super) cpu_s: f64,
    /// Seconds that count.
    pub(super) seconds_looked_at: u32,
}

/// A line of `bench echo`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EchoLine {
    /// One relay in one run.
    Run(RelayRun),
    /// The medians of all runs, last.
    Summary {
        /// Our relay that returns cells.
        ours_gbit_per_cpu_s: f64,
        /// C tor, in transit.
        tor_gbit_per_cpu_s: f64,
        /// Ours divided by C tor's.
        ratio: f64,
        /// Our relay in transit.
        ours_transit_gbit_per_cpu_s: f64,
        /// Number of runs.
        runs: u32,
        /// Length of a run.
        seconds: u32,
    },
}

/// A line of `bench limit`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LimitLine {
    /// One run: traffic in one direction for a second of CPU time.
    Run {
        /// Counted from one.
        run: u32,
        /// Decryption of a record, a layer for each cell, and encryption, in memory.
        cryptography_gbit_per_cpu_s: f64,
        /// Reading from one connection over loopback and writing to another.
        kernel_gbit_per_cpu_s: f64,
        /// Both one after the other.
        bound_gbit_per_cpu_s: f64,
        /// A forwarder of TLS records.
        tls_forwarder_gbit_per_cpu_s: f64,
    },
    /// The medians of all runs, last.
    Summary {
        /// Cryptography and the kernel one after the other.
        bound_gbit_per_cpu_s: f64,
        /// A forwarder of TLS records.
        tls_forwarder_gbit_per_cpu_s: f64,
        /// Number of runs.
        runs: u32,
        /// Length of each part.
        seconds: u32,
    },
}

/// A line of `bench relay`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RelayLine {
    /// One relay in one run.
    Run(RelayRun),
    /// What `bench limit` measures, in one run.
    Limit {
        /// Counted from one.
        run: u32,
        /// Cryptography and the kernel's copies one after the other.
        bound_gbit_per_cpu_s: f64,
        /// The bare TLS forwarder.
        tls_forwarder_gbit_per_cpu_s: f64,
    },
    /// A circuit with little traffic through a relay that has a load.
    Quiet {
        /// `tor` or `ours`.
        relay: &'static str,
        /// The load.
        load_mbit_per_s: f64,
        /// The relay of whose capacity the load is 90 %.
        load_of: &'static str,
        /// CPU time as a share of one core.
        relay_cpu_share: f64,
        /// Median.
        round_trip_median_ms: f64,
        /// 95th percentile.
        round_trip_p95_ms: f64,
        /// Number of round trips.
        round_trips: usize,
    },
    /// The medians of all runs, last.
    Summary {
        /// Our relay.
        ours_gbit_per_cpu_s: f64,
        /// C tor.
        tor_gbit_per_cpu_s: f64,
        /// The bare TLS forwarder.
        tls_forwarder_gbit_per_cpu_s: f64,
        /// Ours divided by C tor's.
        ratio: f64,
        /// Ours divided by the forwarder's.
        share_of_tls_forwarder: f64,
        /// The bound of `bench limit`.
        bound_gbit_per_cpu_s: f64,
        /// Ours divided by the bound.
        share_of_bound: f64,
        /// The quiet circuit through C tor, at 90 % of its capacity.
        tor_quiet_round_trip_ms: Option<f64>,
        /// The quiet circuit through our relay with the same load.
        ours_quiet_round_trip_ms: Option<f64>,
        /// The quiet circuit through our relay, at 90 % of its own capacity.
        ours_quiet_round_trip_at_own_load_ms: Option<f64>,
        /// Number of runs.
        runs: u32,
        /// Length of a run.
        seconds: u32,
    },
}

/// The memory and CPU time of a relay with idle circuits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IdleFigures {
    /// `ours` or `tor`.
    pub(super) relay: &'static str,
    /// Idle connections.
    pub(super) connections: u32,
    /// Idle circuits.
    pub(super) circuits: u64,
    /// Additional memory, in 10⁶ bytes.
    pub(super) grown_mb: f64,
    /// Additional memory for each circuit.
    pub(super) bytes_per_circuit: f64,
    /// Additional memory for each connection.
    pub(super) bytes_per_connection: f64,
    /// CPU time while idle, as a share of one core.
    pub(super) idle_cpu_share: f64,
    /// Wake-ups of its threads while idle, in a second.
    pub(super) idle_wake_ups_per_s: f64,
    /// Circuits that were then built and closed.
    pub(super) soak_circuits: u64,
    /// Time for that.
    pub(super) soak_s: f64,
    /// CPU time for each of them.
    pub(super) soak_cpu_us_per_circuit: f64,
    /// Memory before the first of them, and after each tenth, in 10⁶ bytes.
    pub(super) soak_memory_mb: Vec<f64>,
    /// Memory at the end divided by that after the first tenth.
    pub(super) soak_growth: f64,
}

/// A line of `bench idle`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum IdleLine {
    /// One relay.
    Relay(IdleFigures),
    /// All relays, last.
    Summary {
        /// Our relay.
        ours: Option<IdleFigures>,
        /// C tor, with `--with-tor`.
        tor: Option<IdleFigures>,
    },
}

/// A line of `bench client`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientLine {
    /// One client in one run.
    Run {
        /// Counted from one.
        run: u32,
        /// `ours` or `tor`.
        client: &'static str,
        /// Downloaded for a second of CPU time.
        gbit_per_cpu_s: f64,
        /// The rate of all downloads together.
        rate_mbit_per_s: f64,
        /// The median time to the first byte.
        first_byte_ms: f64,
        /// Downloaded.
        bytes: u64,
        /// CPU time of the client.
        cpu_s: f64,
    },
    /// The medians of all runs, last. Intervals are of 95 % confidence.
    Summary {
        /// Our client.
        ours_gbit_per_cpu_s: f64,
        /// C tor.
        tor_gbit_per_cpu_s: f64,
        /// Ours divided by C tor's.
        ratio: f64,
        /// The interval of `ratio`.
        ratio_interval: Option<(f64, f64)>,
        /// The median time to the first byte with our client.
        ours_first_byte_ms: f64,
        /// The median time to the first byte with C tor.
        tor_first_byte_ms: f64,
        /// Ours divided by C tor's.
        first_byte_ratio: f64,
        /// The interval of `first_byte_ratio`.
        first_byte_ratio_interval: Option<(f64, f64)>,
        /// Number of runs.
        runs: u32,
        /// Size of a download, in 10⁶ bytes.
        mb: u32,
        /// Downloads at once.
        streams: u8,
    },
}

/// A line of `bench path`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PathLine {
    /// One run.
    Run {
        /// Counted from one.
        run: u32,
        /// The sender, with `--paper-hosts`.
        host: Option<&'static str>,
        /// Throughput.
        mbit_per_s: f64,
        /// CPU time of the thread that forwards packets.
        path_cpu_s_per_gbit: f64,
        /// CPU time of the process, with sender and receiver.
        process_cpu_s_per_gbit: f64,
        /// Packets of the sender.
        out: Counts,
        /// Packets of the receiver.
        back: Counts,
        /// Losses that were not specified.
        unintended: UnintendedLosses,
    },
    /// The medians of all runs, last.
    Summary {
        /// Number of runs.
        runs: u32,
        /// Length of a run.
        seconds: u32,
        /// Round-trip time of the path; of those of `--paper-hosts`, 0.
        rtt_ms: u32,
        /// Specified loss.
        loss_percent: f64,
        /// Connections at once.
        connections: u32,
        /// Congestion control.
        congestion: &'static str,
        /// Throughput.
        mbit_per_s: f64,
        /// CPU time of the thread that forwards packets.
        path_cpu_s_per_gbit: f64,
        /// CPU time of the process, with sender and receiver.
        process_cpu_s_per_gbit: f64,
        /// Losses of all runs that were not specified.
        unintended_losses: u64,
    },
}
