//! What `flashflow-lab bench` accepts.

use clap::{Args, Subcommand};

/// Benchmarks.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab bench measurer --seconds 10 --json")]
pub struct BenchOptions {
    #[command(subcommand)]
    pub(super) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(super) enum BenchWhat {
    /// What a measurer's processor needs to send, receive and check, compared with a bare TLS pump.
    #[command(after_help = "Example:\n  flashflow-lab bench measurer --seconds 10 --json")]
    Measurer {
        /// Length of each measurement in seconds, 3 to 600.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=600))]
        seconds: u32,
        /// Measurements, each with a pump before and after it.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
        runs: u32,
        /// Rate limit of the relay in Mbit/s; 0 for no limit.
        #[arg(long, default_value_t = 0.0, value_name = "MBIT")]
        limit: f64,
    },
    /// What echoing costs a relay, compared with C tor that relays the same cells.
    ///
    /// A stock relay without a limit is measured in transit, our relay as an echo and in transit,
    /// in turn; what each uses of the processors comes from /proc.
    #[command(after_help = "Example:\n  flashflow-lab bench echo --seconds 10 --json")]
    Echo(BesideTor),
    /// What relaying costs our relay, compared with C tor and with bare TLS.
    ///
    /// A C tor relay and our relay, both without limit, are measured in transit in turn: the same
    /// generator, the same cells, as a middle hop. What each uses of the processors comes from /proc.
    /// In each run a TLS forwarder (receive, decrypt, encrypt, send) shows what no relay can beat. Then
    /// each is loaded with nine tenths of what stock tor could carry, and ours with nine tenths of its
    /// own, while a circuit with next to nothing on it measures its round trip.
    #[command(after_help = "Example:\n  flashflow-lab bench relay --seconds 10 --json")]
    Relay(BesideTor),
    /// What downloads cost our client, compared with C tor as a client.
    ///
    /// Both, each a process, download the same through one private network of stock tor in turn; what each uses of the processors for it comes from
    /// /proc. Before, downloads of a byte over open circuits measure the time to the first byte.
    #[command(
        after_help = "Example:\n  flashflow-lab bench client --mb 50 --streams 4 --runs 5 --json"
    )]
    Client(ClientBench),
    /// What a network of our own with real distances carries, and what that costs.
    ///
    /// Bulk TCP from one host to another, over a path of `flashflow-lab lab path`, in networks of its own
    /// (namespaces), which needs root. What has arrived the receiving kernel counts.
    #[command(after_help = "Example:\n  flashflow-lab bench path --rtt-ms 100 --seconds 10 --json")]
    Path(PathBench),
    /// What idle connections and circuits cost our relay, and whether it forgets those that end.
    ///
    /// Opens connections and circuits of one hop to our relay, and reads its memory and its
    /// processor time while nothing happens on them. Then builds and tears down circuits one after
    /// another on the same connections, and reads the memory again and again.
    #[command(after_help = "Examples:\n  flashflow-lab bench idle --json\n  \
        flashflow-lab bench idle --connections 500 --circuits 5000 --soak 100000 --beside-tor")]
    Idle {
        /// Connections.
        #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
        connections: u32,
        /// Circuits that stay open, on all connections together.
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        circuits: u32,
        /// Circuits that are built and torn down afterwards.
        #[arg(long, default_value_t = 2_000_000, value_name = "CIRCUITS")]
        soak: u64,
        /// Do the same to a stock tor, for comparison.
        #[arg(long)]
        beside_tor: bool,
    },
}

/// What clients download.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ClientBench {
    /// Length of each download in MB of 10⁶ bytes, 1 to 1000.
    #[arg(long, default_value_t = 50, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) mb: u32,
    /// Downloads at once, each on a circuit of its own; 1 to 32.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(super) streams: u8,
    /// Runs of each client, 1 to 50.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
}

/// What is sent over which path.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct PathBench {
    /// Seconds that count, 1 to 600.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: u32,
    /// Seconds before those, in which TCP finds its pace; 0 to 60.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub(super) warm_up_s: u32,
    /// Runs, each in a network of its own; 1 to 50.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
    /// Round trip in milliseconds, half of it each way; 0 to 2000.
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
}

/// How two relays are compared.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct BesideTor {
    /// Length of each measurement in seconds, 3 to 120. The first and the last do not count.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=120))]
    pub(super) seconds: u32,
    /// Measurements of each relay.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(super) runs: u32,
    /// What the measurer sends at most, in Mbit/s.
    #[arg(long, default_value_t = 100_000.0, value_name = "MBIT")]
    pub(super) capacity: f64,
}
