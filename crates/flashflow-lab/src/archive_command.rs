//! `flashflow-lab archive`: its command line.

mod run;
mod series;

#[cfg(feature = "archive-cluster")]
use archive::cluster::Scheduler;
use archive::engine::Period;
use archive::times;
use clap::{Args, Subcommand, ValueEnum};
use netdoc::Fingerprint;
#[cfg(feature = "archive-cluster")]
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use run::run;

/// Analyse Tor's archives: capacities, weights and their errors over years.
///
/// Archives become a dataset of Parquet files, by month, that pandas, polars and DuckDB read as well. Queries are SQL. See archives.md in
/// the documentation.
#[derive(Debug, Args)]
pub(crate) struct ArchiveOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Import(Import),
    Errors(ErrorsCommand),
    Speedtest(SpeedtestCommand),
    Staging(StagingCommand),
    Schedule(series::ScheduleCommand),
    Summary(SummaryCommand),
    Relay(RelayCommand),
    Query(QueryCommand),
    Synth(SynthCommand),
    #[cfg(feature = "archive-cluster")]
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

/// Run a scheduler or an executor of a cluster for queries with --cluster: one scheduler, and executors on any number of machines.
///
/// Connections are neither encrypted nor authenticated: anybody who reaches a port can run queries. Use a private network.
#[cfg(feature = "archive-cluster")]
#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Run the scheduler, which divides queries among executors, until it is interrupted.
    Scheduler {
        /// Address for clients and executors.
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50050")]
        listen: SocketAddr,
    },
    /// Run an executor until it is interrupted.
    Executor {
        /// Its scheduler.
        #[arg(long, value_name = "df://HOST:PORT", default_value = "df://127.0.0.1:50050")]
        scheduler: Scheduler,
        /// Address at which other executors and clients fetch results: no wildcard.
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50051")]
        listen: SocketAddr,
        /// Folder for intermediate results, which is made if it is not there.
        #[arg(long, value_name = "DIR")]
        work: PathBuf,
        /// Threads. By default all processors.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
        threads: Option<u16>,
        /// Memory for sorting and joining, of all threads.
        #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
        memory: u32,
    },
}

/// Import archives into a dataset.
///
/// A SOURCE is a file or a folder: consensuses and server descriptors as CollecTor publishes them (.tar.xz, .tar, or single documents, also
/// concatenated), Onionoo's details documents, change tables, tornettools' staged networks, the folder of the authors' speed test. Archives
/// are not unpacked. Signatures are verified with --verify only. What is damaged is reported and left out. Sources that were imported before are skipped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab archive import --to tor.dataset consensuses-2019-07.tar.xz
  flashflow-lab archive import --to tor.dataset server-descriptors-2019-0*.tar.xz

With --json: one line for each source, `type` imported, and one of `type` summary.

Exit status: 0 imported, perhaps without damaged documents; 1 a source is truncated, refused or unreadable, and what came
before is imported, or the dataset cannot be written; 2 wrong arguments; 130 interrupted, with what was imported up to then.")]
struct Import {
    /// Files and folders.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// Folder of the dataset, which is made if it is not there.
    #[arg(long, value_name = "DATASET")]
    to: PathBuf,
    /// Read sources again that were imported before.
    #[arg(long)]
    again: bool,
    /// Leave out consensuses unless more than half of the authorities have signed them. The authorities are those with certificates in this
    /// file: tor's cached-certs, or an archive of CollecTor's certs.
    #[arg(long, value_name = "CERTIFICATES")]
    verify: Option<PathBuf>,
}

/// Resources of queries.
#[derive(Clone, Debug, Args)]
struct Resources {
    /// Threads. By default all processors.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Memory for sorting and joining; more is spilled to temporary files.
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    memory: u32,
    /// Run queries on the cluster of this scheduler, which `archive cluster` starts. All its machines must have the dataset under the path
    /// that it has here. --threads is then the number of parts into which the work is divided.
    #[cfg(feature = "archive-cluster")]
    #[arg(long, value_name = "df://HOST:PORT")]
    cluster: Option<Scheduler>,
}

/// Which rows count.
#[derive(Clone, Debug, Args)]
struct Choice {
    /// Use the relays of this origin: tor (consensuses and descriptors), onionoo, membership or synthetic. By default the only one that
    /// has bandwidths.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    /// Lengths of the period before an hour in which the largest bandwidth is the capacity: day, week, month (30 days), year (365 days),
    /// or days such as 14d.
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        default_value = "day,week,month,year"
    )]
    periods: Vec<Period>,
    /// Leave out weights that are based on fewer than three measurements (Unmeasured=1).
    #[arg(long)]
    measured_only: bool,
}

/// Compute the errors of section 3 of the FlashFlow paper over a dataset.
///
/// The page has figures 1, 2, 3, 4, 10a and 10b and a table that compares with the paper's numbers. Definitions are in archives.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab archive errors tor.dataset --out errors
  flashflow-lab archive errors tor.dataset --periods day,week --until 2019-08-01 --json

Exit status: 0 computed; 1 the dataset lacks consensuses or descriptors, or cannot be read; 2 wrong arguments.")]
struct ErrorsCommand {
    /// The dataset.
    dataset: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// When errors begin to count, after the first consensus: the longest period for all, as in the paper, or each period's own.
    #[arg(long, value_enum, default_value_t = WarmUpName::Longest)]
    warm_up: WarmUpName,
    /// Count errors from this time on, at the earliest: YYYY-MM-DD, or YYYY-MM-DD HH:MM, UTC.
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    from: Option<i64>,
    /// Count errors before this time only.
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    until: Option<i64>,
    /// Write the page, figures and tables to this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    resources: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WarmUpName {
    Longest,
    Own,
}

/// Show what a speed test of all relays did to advertised bandwidths and weights.
///
/// By default of the paper's test in August 2019, from the authors' data. With --from and --until, of any interval of the dataset: the five
/// days before it are compared with the five days after its begin. With --simulated, of a modelled network, hour by hour over two weeks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab archive speedtest authors.dataset --out figure-5
  flashflow-lab archive speedtest --simulated --out simulated
  flashflow-lab archive speedtest tor.dataset --from 2026-03-01 --until 2026-03-03 --relays measured.txt

Exit status: 0 computed; 1 the dataset has no relays then, or cannot be read; 2 wrong arguments.")]
struct SpeedtestCommand {
    /// The dataset. With --simulated, capacities are the largest bandwidths of the authors' test, or those of a staged network.
    #[arg(required_unless_present = "simulated")]
    dataset: Option<PathBuf>,
    /// Simulate a test of the dataset's relays, or of 6,500 synthetic ones.
    #[arg(long, conflicts_with = "from")]
    simulated: bool,
    /// With --simulated: all traffic, as a share of all capacity.
    #[arg(long, value_name = "0..1", default_value_t = 0.35, requires = "simulated")]
    load: f64,
    /// With --simulated: length of the test.
    #[arg(long, value_name = "HOURS", default_value_t = 51, requires = "simulated",
        value_parser = clap::value_parser!(u32).range(1..=120))]
    test_hours: u32,
    /// With --simulated: seed of all choices.
    #[arg(long, default_value_t = 1, requires = "simulated")]
    seed: u64,
    /// Begin of the test, UTC.
    #[arg(long, value_name = "TIME", value_parser = times::parse, requires = "until")]
    from: Option<i64>,
    /// End of the test, UTC.
    #[arg(long, value_name = "TIME", value_parser = times::parse, requires = "from")]
    until: Option<i64>,
    /// Fingerprints of the relays that were measured, one a line. By default all relays.
    #[arg(long, value_name = "FILE", requires = "from")]
    relays: Option<PathBuf>,
    /// Use the relays of this origin.
    #[arg(long, value_name = "NAME", requires = "from")]
    origin: Option<String>,
    /// Write the page, figure and tables to this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    resources: Resources,
}

/// Compute the errors of weights in a network that tornettools staged.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 computed; 1 the dataset has no staged network, or cannot be read; 2 wrong arguments."
)]
struct StagingCommand {
    /// The dataset.
    dataset: PathBuf,
    #[command(flatten)]
    resources: Resources,
}

/// Show relays, advertised bandwidth and weights over time.
#[derive(Debug, Args)]
#[command(after_help = "With --json: one line for each day, `type` day.

Exit status: 0 computed; 1 the dataset is empty or cannot be read; 2 wrong arguments.")]
struct SummaryCommand {
    /// The dataset.
    dataset: PathBuf,
    /// Use the relays of this origin.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    #[command(flatten)]
    resources: Resources,
}

/// Show a relay's history as a page.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 written; 1 the dataset does not have the relay, or a file cannot be read or written; 2 wrong arguments."
)]
struct RelayCommand {
    /// The dataset.
    dataset: PathBuf,
    /// The relay's fingerprint: 40 hex digits.
    fingerprint: Fingerprint,
    #[command(flatten)]
    choice: Choice,
    /// Write the page, figures and tables to this folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    resources: Resources,
}

/// Run SQL on a dataset.
///
/// Tables: statuses, descriptors, staging, campaigns, variations, network_hours, and relay_hours, which has the windows of `errors`. `SHOW
/// COLUMNS` describes them: SELECT * FROM information_schema.columns. Nothing can be changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab archive query tor.dataset 'SELECT COUNT(DISTINCT relay) FROM statuses WHERE is_exit'
  flashflow-lab archive query tor.dataset --format csv \\
      'SELECT month, MAX(advertised_byte_per_s) FROM descriptors GROUP BY month'

Exit status: 0 done; 1 the query is wrong or failed; 2 wrong arguments.")]
struct QueryCommand {
    /// The dataset.
    dataset: PathBuf,
    /// The query.
    sql: String,
    /// Format of the result. With --json: json.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// File for the result as Parquet, which must not exist.
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    parquet: Option<PathBuf>,
    /// Use the relays of this origin in relay_hours.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    #[command(flatten)]
    resources: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

/// Make a synthetic archive, for tests and to plan machines.
///
/// Relays come and go; their advertised bandwidth follows their load, so it is below their capacity.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab archive synth --to year.dataset --relays 8000 --hours 8760

Exit status: 0 made; 1 the dataset cannot be written; 2 wrong arguments; 130 interrupted.")]
struct SynthCommand {
    /// Folder of the dataset, which is made if it is not there.
    #[arg(long, value_name = "DATASET")]
    to: PathBuf,
    /// Relays that run at a time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    relays: u32,
    /// Consensuses, one an hour.
    #[arg(long, default_value_t = 720, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    hours: u32,
    /// Time of the first consensus.
    #[arg(long, value_name = "TIME", default_value = "2020-01-01", value_parser = times::parse)]
    from: i64,
    /// Mean life of a relay.
    #[arg(long, value_name = "HOURS", default_value_t = 2000.0)]
    mean_life: f64,
    /// Mean load, as a share of the capacity.
    #[arg(long, value_name = "0..1", default_value_t = 0.4)]
    mean_load: f64,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}
