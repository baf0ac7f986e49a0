//! The options of `flashflow-lab bench`.

use clap::{Args, Subcommand};

/// Benchmarks.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab bench measurer --seconds 10 --json")]
pub struct BenchOptions {
    #[command(subcommand)]
    pub(super) benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
pub(super) enum Benchmark {
    /// Processor time of a measurer, compared with a bare TLS pump.
    ///
    /// The measurer sends, receives and checks cells; the pump uses records of the same lengths.
    #[command(after_help = "Example:\n  flashflow-lab bench measurer --seconds 10 --json")]
    Measurer(MeasurerBench),
    /// Processor time of a relay that echoes, compared with C tor that relays the same cells.
    ///
    /// In turn, a C tor relay is measured in transit, and our relay as an echo and in transit, without rate limits.
    /// The processor time of each comes from /proc.
    #[command(after_help = "Examples:\n  flashflow-lab bench echo --seconds 10 --json\n  \
        flashflow-lab bench echo --seconds 60 --runs 1 --sockets 1,5,13,20,50,100")]
    Echo(EchoBench),
    /// Processor time of our relay, compared with C tor and with bare TLS.
    ///
    /// In turn, a C tor relay and our relay are measured in transit, without rate limits, with the same generator and
    /// as a middle hop. The processor time of each comes from /proc. In each run `bench limit` is measured as well. Then each relay is loaded with 90 % of C tor's capacity, and ours
    /// with 90 % of its own as well, while an otherwise idle circuit measures its round trip.
    #[command(after_help = "Example:\n  flashflow-lab bench relay --seconds 10 --json")]
    Relay(RelayBench),
    /// The least processor time of any relay on this machine: of cryptography, and of the kernel's copies.
    ///
    /// Cryptography decrypts TLS records of 31 cells in memory, applies a keystream to each cell, and encrypts them again. The
    /// kernel copies bytes from one connection over loopback, and to another. Both one after the other are the bound. A TLS
    /// forwarder does both without a relay's other work, and without a keystream.
    #[command(after_help = "Example:\n  flashflow-lab bench limit --seconds 5 --json")]
    Limit(LimitBench),
    /// Processor time of our client's downloads, compared with C tor as a client.
    ///
    /// In turn, both clients download the same content through a private network of C tor. The processor time of each
    /// process comes from /proc. Downloads of one byte over open circuits measure the time to the first byte.
    #[command(
        after_help = "Example:\n  flashflow-lab bench client --mb 50 --streams 4 --runs 5 --json"
    )]
    Client(ClientBench),
    /// Throughput and processor time of an emulated path.
    ///
    /// Sends bulk TCP between two network namespaces (this requires root) over a path like that of `flashflow-lab lab
    /// path`. The receiving kernel counts the bytes.
    #[command(after_help = "Example:\n  flashflow-lab bench path --rtt-ms 100 --seconds 10 --json")]
    Path(PathBench),
    /// Memory and processor time of idle connections and circuits, and memory growth over many circuits.
    ///
    /// Opens connections and one-hop circuits to our relay, and reads its memory and processor time while they are
    /// idle. Then builds and closes circuits on the same connections, and reads the memory repeatedly.
    #[command(after_help = "Examples:\n  flashflow-lab bench idle --json\n  \
        flashflow-lab bench idle --connections 500 --circuits 5000 --soak 100000 --with-tor")]
    Idle(IdleBench),
}

/// The options of `bench measurer`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct MeasurerBench {
    /// Length of each measurement in seconds, 3 to 600.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=600))]
    pub(super) seconds: u32,
    /// Measurements, each followed by runs of the pump.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
    /// Rate limit of the relay in Mbit/s; 0 for no limit.
    #[arg(long, default_value_t = 0.0, value_name = "MBIT")]
    pub(super) limit: f64,
}

/// The options of `bench idle`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct IdleBench {
    /// Connections, 1 to 20000.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(super) connections: u32,
    /// Circuits that stay open, over all connections; 1 to 1000000.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) circuits: u32,
    /// Circuits that are built and closed afterwards.
    #[arg(long, default_value_t = 2_000_000, value_name = "CIRCUITS")]
    pub(super) soak: u64,
    /// Repeat the benchmark with a C tor relay, for comparison.
    #[arg(long)]
    pub(super) with_tor: bool,
}

/// The options of `bench client`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ClientBench {
    /// Length of each download in MB of 10⁶ bytes, 1 to 1000.
    #[arg(long, default_value_t = 50, value_name = "MB",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) mb: u32,
    /// Simultaneous downloads, each on its own circuit; 1 to 32.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(super) streams: u8,
    /// Runs of each client, 1 to 50.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
}

/// The options of `bench path`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct PathBench {
    /// Measured seconds, 1 to 600.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: u32,
    /// Seconds of warm-up, in which TCP settles; 0 to 60.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub(super) warm_up_s: u32,
    /// Runs, each in a new network; 1 to 50.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
    /// Round-trip time in milliseconds, half of it in each direction; 0 to 2000.
    #[arg(long, default_value_t = 100, value_name = "MS",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    pub(super) rtt_ms: u32,
    /// Loss in the forward direction, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    pub(super) loss_percent: f64,
    /// Connections, 1 to 1000.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) connections: u32,
    /// TCP's congestion control at the sender: bbr, cubic or reno.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    pub(super) congestion: lab::wan::Congestion,
    /// Instead of one path, those from each of the paper's hosts (table 1) to US-SW in turn, with the rates of their links.
    #[arg(long, conflicts_with = "rtt_ms")]
    pub(super) paper_hosts: bool,
}

/// The options of `bench limit`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct LimitBench {
    /// Length of each part in seconds, 1 to 60.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(super) seconds: u32,
    /// Runs, 1 to 50.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
}

/// The options of `bench echo` and `bench relay`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct RelayBench {
    /// Length of each measurement in seconds, 3 to 120. The first and the last second are not evaluated.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=120))]
    pub(super) seconds: u32,
    /// Measurements of each relay, 1 to 50.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
    /// Maximum sending rate of the measurer, in Mbit/s.
    #[arg(long, default_value_t = 100_000.0, value_name = "MBIT")]
    pub(super) capacity: f64,
}

/// The options of `bench echo`.
#[derive(Clone, Debug, Args)]
pub(super) struct EchoBench {
    #[command(flatten)]
    pub(super) relay: RelayBench,
    /// Sockets of a measurement, 1 to 300, all at once (paper: figure 11). Each number has its runs; the summary is of the last. By default,
    /// the number depends on distance and rate.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(super) sockets: Vec<u32>,
}
