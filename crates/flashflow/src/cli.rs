//! What the command line accepts.

use crate::coordinator_command::CoordinatorOptions;
use crate::experiment::ExperimentOptions;
use crate::keys::KeysOptions;
use crate::measure_team::MeasureTeamOptions;
use crate::measurer_command::MeasurerOptions;
use crate::relay_command::RelayOptions;
use clap::{Args, Parser, Subcommand};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Measures what Tor relays can carry.
///
/// A team of measurers floods a relay with real Tor cells for some seconds, checks that the relay did
/// the work, and takes the median second.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(after_help = "Example:\n  flashflow demo --limits 10,50,0 --seconds 10")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// End when standard input ends: for those who start a process and may be killed.
    #[arg(long, global = true, hide = true)]
    pub(crate) tied: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoOptions),
    Measure(MeasureOptions),
    MeasureTeam(MeasureTeamOptions),
    Lab(LabOptions),
    Bench(BenchOptions),
    Experiment(ExperimentOptions),
    Keys(KeysOptions),
    Measurer(MeasurerOptions),
    Coordinator(CoordinatorOptions),
    Relay(RelayOptions),
}

impl Command {
    pub(crate) const fn wants_json(&self) -> bool {
        match self {
            Self::Demo(options) => options.json,
            Self::Measure(options) => options.json,
            Self::MeasureTeam(options) => options.json,
            Self::Lab(options) => options.json,
            Self::Bench(options) => options.json,
            Self::Experiment(options) => options.common.json,
            Self::Keys(options) => options.json,
            Self::Measurer(options) => options.json,
            Self::Coordinator(options) => options.json,
            Self::Relay(options) => options.json,
        }
    }
}

/// Bring up a private Tor network on this machine and measure it end to end.
///
/// Stock tor processes form a network on loopback; every relay is measured; the results become a
/// bandwidth file, by which the network's own authorities vote; the next consensus is compared with
/// it. Leaves an HTML report. Nothing leaves this machine, and nothing stays behind but the results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow demo
  flashflow demo --limits 10,50,100,250 --seconds 10 --json
  flashflow demo --relays 2 --limits 0 --out /tmp/results

Exit status: 0 all relays measured and the weights voted; 1 something failed; 2 wrong arguments;
130 interrupted.")]
pub(crate) struct DemoOptions {
    /// Number of relays, 1 to 50; by default as many as there are limits.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) relays: Option<u32>,
    /// Rate limits of the relays in Mbit/s, taken in turn; 0 for no limit.
    #[arg(long, value_delimiter = ',', default_value = "10,50,100,250", value_name = "MBIT,…")]
    pub(crate) limits: Vec<f64>,
    /// Rate limits in Mbit/s of relays of our own beside them, which take part in their measurement
    /// (echo); 0 for no limit, `none` for no such relays.
    #[arg(long, value_delimiter = ',', default_value = "50", value_name = "MBIT,…",
        value_parser = echo_limit)]
    pub(crate) echo_limits: Vec<Option<f64>>,
    /// Keep the network's folder with all logs, and say where it is.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Folder for bandwidth file and report.
    #[arg(long, value_name = "DIR", default_value = "flashflow-demo")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) team: TeamArguments,
    /// Print results as JSON, one value a line; the last is the summary.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure one relay: how fast is it?
///
/// The relay is named by fingerprint or nickname and looked up in a consensus (--authority or
/// --consensus), or given by address and identity (--address with a fingerprint).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow measure relay1 --authority 127.0.0.1:7001
  flashflow measure 3F2B…A0 --consensus cached-consensus
  flashflow measure 3F2B…A0 --address 10.0.0.7:9001

A relay on a public address must have opted in: see --opt-in.

Exit status: 0 conclusive; 1 failed; 2 wrong arguments; 3 a lower bound only; 130 interrupted.")]
pub(crate) struct MeasureOptions {
    /// Fingerprint (40 hex digits) or, with a consensus, nickname.
    pub(crate) relay: String,
    /// Directory authority (or cache) to fetch the consensus from: IP address and port.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["consensus", "address"])]
    pub(crate) authority: Option<SocketAddr>,
    /// File with a consensus, such as tor's cached-consensus.
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) consensus: Option<PathBuf>,
    /// The relay's address, where no consensus is at hand.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// The relay's Ed25519 identity in base64, which it then must prove, too.
    #[arg(long, value_name = "BASE64", requires = "address")]
    pub(crate) ed25519: Option<String>,
    /// File with the fingerprints of relays whose operators agreed to be measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) opt_in: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) team: TeamArguments,
    /// Measure with the measurers of a coordinator's configuration, instead of threads of this process.
    #[arg(long = "team", value_name = "FILE")]
    pub(crate) coordinator: Option<PathBuf>,
    /// Print results as JSON, one value a line: each second, then a summary.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A limit in Mbit/s, or `none`.
fn echo_limit(text: &str) -> Result<Option<f64>, String> {
    match text {
        "none" | "" => Ok(None),
        _ => text.parse().map(Some).map_err(|error| format!("{text:?} is no rate: {error}")),
    }
}

/// How to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct TeamArguments {
    /// Length of a measurement in seconds, 3 to 600. Under 10, a relay's first burst weighs much.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=600))]
    pub(crate) seconds: u32,
    /// Measurers: threads of this process, 1 to 64.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) measurers: u32,
    /// What each measurer can send and receive, in Mbit/s; found out if not given.
    #[arg(long, value_name = "MBIT")]
    pub(crate) capacity: Option<f64>,
    /// Most sockets to the relay, over all measurers; fewer are used where fewer do.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) sockets: u32,
    /// What to expect of a relay at first, in Mbit/s; too low costs rounds, too high costs load.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    pub(crate) guess: f64,
    /// Share of cells whose content is checked; 0.008 is one in 125.
    #[arg(long, default_value_t = 0.008, value_name = "SHARE")]
    pub(crate) check_share: f64,
    /// Our own address, where the relay finds the measurers; by default the one towards it.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) own_address: Option<IpAddr>,
    /// Authenticate links as a relay's even where that gains nothing.
    #[arg(long)]
    pub(crate) authenticate: bool,
}

/// Private networks of stock tor, for other purposes than the demo.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow lab up --dir /tmp/net --limits 10,0
  flashflow lab status --dir /tmp/net
  flashflow lab down --dir /tmp/net

Exit status: 0 done, or all nodes run; 1 failed, or a node is dead; 2 wrong arguments.")]
pub(crate) struct LabOptions {
    #[command(subcommand)]
    pub(crate) action: LabAction,
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Bring up a network that stays until `lab down`.
    #[command(after_help = "Example:\n  flashflow lab up --dir /tmp/net --limits 10,0")]
    Up {
        /// Folder of the network: absent or empty.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Number of relays, 1 to 50; by default as many as there are limits.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
        relays: Option<u32>,
        /// Rate limits of the relays in Mbit/s, taken in turn; 0 for no limit.
        #[arg(long, value_delimiter = ',', default_value = "10,50,100,250", value_name = "MBIT,…")]
        limits: Vec<f64>,
    },
    /// Say what runs, and where.
    #[command(after_help = "Example:\n  flashflow lab status --dir /tmp/net")]
    Status {
        /// Folder of the network.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Take the network down and remove its folder.
    #[command(after_help = "Example:\n  flashflow lab down --dir /tmp/net

Exit status: 0 done, or all nodes run; 1 failed, or a node is dead; 2 wrong arguments.")]
    Down {
        /// Folder of the network.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Benchmarks.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow bench measurer --seconds 10 --json")]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
    /// Print results as JSON, one value a line; the last is the summary.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// What a measurer's processor needs to send, receive and check, beside a bare TLS pump.
    #[command(after_help = "Example:\n  flashflow bench measurer --seconds 10 --json")]
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
    /// What echoing costs a relay, beside stock tor that relays the same cells.
    ///
    /// A stock relay without a limit is measured in transit, a relay of ours as an echo and in transit,
    /// in turn; what each uses of the processors comes from /proc.
    #[command(after_help = "Example:\n  flashflow bench echo --seconds 10 --json")]
    Echo(BesideTor),
    /// What relaying costs our relay, beside stock tor and beside bare TLS.
    ///
    /// A stock relay and one of ours, both without limit, are measured in transit in turn: the same
    /// generator, the same cells, as a middle hop. What each uses of the processors comes from /proc.
    /// In each run a TLS forwarder (receive, decrypt, encrypt, send) shows what no relay can beat. Then
    /// each is loaded with nine tenths of what stock tor could carry, and ours with nine tenths of its
    /// own, while a circuit with next to nothing on it measures its round trip.
    #[command(after_help = "Example:\n  flashflow bench relay --seconds 10 --json")]
    Relay(BesideTor),
    /// What idle connections and circuits cost our relay, and whether it forgets those that end.
    ///
    /// Opens connections and circuits of one hop to a relay of ours, and reads its memory and its
    /// processor time while nothing happens on them. Then builds and tears down circuits one after
    /// another on the same connections, and reads the memory again and again.
    #[command(after_help = "Examples:\n  flashflow bench idle --json\n  \
        flashflow bench idle --connections 500 --circuits 5000 --soak 100000 --beside-tor")]
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

/// How relays are measured beside each other.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BesideTor {
    /// Length of each measurement in seconds, 3 to 120. The first and the last do not count.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=120))]
    pub(crate) seconds: u32,
    /// Measurements of each relay.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) runs: u32,
    /// What the measurer sends at most, in Mbit/s.
    #[arg(long, default_value_t = 100_000.0, value_name = "MBIT")]
    pub(crate) capacity: f64,
}
