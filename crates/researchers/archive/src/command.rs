//! The commands.

mod co_location;
mod datasets;
mod lines;
mod run;
mod series;

use archive::cluster::Scheduler;
use archive::dataset::Location;
use archive::engine::Period;
use archive::times;
use clap::{Args, Subcommand, ValueEnum};
use cli::{
    Commands, CompletionsOptions, Either, Error, ManualLine, ManualOptions, SchemaOptions, Schemas,
    schema_of,
};
use datasets::{CacheOptions, DatasetOptions};
use lines::{Line, PageLine, ScheduleLine};
use netdoc::RsaId;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::path::PathBuf;
use terminal::{Exit, Interrupt, Output};

/// A line of most commands.
type AnyLine = Either<Line<'static>, PageLine<'static>>;

/// The schemas of the lines of commands. `query` prints the rows of its result.
const SCHEMAS: Schemas = &[
    ("import", schema_of::<AnyLine>),
    ("check", schema_of::<AnyLine>),
    ("synth", schema_of::<AnyLine>),
    ("errors", schema_of::<AnyLine>),
    ("speedtest", schema_of::<AnyLine>),
    ("staging", schema_of::<AnyLine>),
    ("schedule", schema_of::<Either<ScheduleLine<'static>, PageLine<'static>>>),
    ("summary", schema_of::<AnyLine>),
    ("co-location", schema_of::<AnyLine>),
    ("relay", schema_of::<AnyLine>),
    ("convert", schema_of::<AnyLine>),
    ("manual", schema_of::<ManualLine>),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Import(Import),
    Check(CheckCommand),
    Synth(SynthCommand),
    Errors(ErrorsCommand),
    Speedtest(SpeedtestCommand),
    Staging(StagingCommand),
    Schedule(series::ScheduleCommand),
    Summary(SummaryCommand),
    CoLocation(co_location::CoLocationCommand),
    Relay(RelayCommand),
    Query(QueryCommand),
    Convert(ConvertCommand),
    Scheduler(SchedulerCommand),
    Executor(ExecutorCommand),
    Completions(CompletionsOptions),
    Schema(SchemaOptions),
    /// For packagers.
    #[command(hide = true)]
    Manual(ManualOptions),
}

impl Commands for Command {
    const NAME: &'static str = "flashflow-archive";
    const ABOUT: &'static str = "Tor's archives: capacities, weights and their errors over years";
    const LONG_ABOUT: &'static str = "Imports archives into a dataset of Parquet files, one per month, which pandas, polars and DuckDB \
        can also read. A dataset is a folder, or s3://BUCKET/PREFIX in object storage. \
        Queries are SQL. See archives.md in the documentation.";
    const EXAMPLES: &'static str = "Example:
  flashflow-archive synth --to tor.dataset
  flashflow-archive errors tor.dataset --out errors";
    const GROUPS: &'static [(&'static str, &'static [&'static str])] = &[
        ("Datasets", &["import", "check", "synth", "convert"]),
        (
            "Questions",
            &[
                "errors",
                "speedtest",
                "staging",
                "schedule",
                "summary",
                "co-location",
                "relay",
                "query",
            ],
        ),
        ("Clusters", &["scheduler", "executor"]),
        ("Other", &["completions", "schema", "help"]),
    ];

    fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        match self {
            Self::Import(options) => options.run(output, interrupt),
            Self::Check(options) => options.run(output),
            Self::Synth(options) => options.run(output, interrupt),
            Self::Errors(options) => options.run(output),
            Self::Speedtest(options) => options.run(output),
            Self::Staging(options) => options.run(output),
            Self::Schedule(options) => options.run(output, interrupt),
            Self::Summary(options) => options.run(output),
            Self::CoLocation(options) => options.run(output),
            Self::Relay(options) => options.run(output),
            Self::Query(options) => options.run(output),
            Self::Convert(options) => options.run(output),
            Self::Scheduler(options) => options.run(output),
            Self::Executor(options) => options.run(output),
            Self::Schema(options) => options.run(SCHEMAS, output),
            Self::Completions(options) => Ok(options.run(cli::command::<Self>(), output)),
            Self::Manual(options) => options.run::<Self>(output),
        }
    }

    /// Errors of the library are never errors of the command line.
    fn is_usage(_: &(dyn StdError + Send + Sync + 'static)) -> bool {
        false
    }
}

/// Run the scheduler of a cluster, which divides queries among executors, until it is interrupted.
///
/// A cluster has one scheduler, and executors on any number of machines. Connections are neither encrypted nor authenticated: anybody
/// who reaches a port can run any plan, which can read and write files. Use a private network, and --allow-others.
#[derive(Debug, Args)]
pub(crate) struct SchedulerCommand {
    /// Address for clients and executors. It must be a loopback address, unless --allow-others is given.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50050")]
    listen: SocketAddr,
    /// Allow connections from other machines. Whoever reaches the port can read and write all files of this user.
    #[arg(long)]
    allow_others: bool,
}

/// Run an executor of a cluster until it is interrupted.
///
/// Queries with --cluster run on the executors of the cluster. Connections are neither encrypted nor authenticated: see `scheduler`.
#[derive(Debug, Args)]
pub(crate) struct ExecutorCommand {
    /// Address of the scheduler.
    #[arg(long, value_name = "df://HOST:PORT", default_value = "df://127.0.0.1:50050")]
    scheduler: Scheduler,
    /// Address at which other executors and clients fetch results. It must be a loopback address, unless --allow-others is given, and
    /// not a wildcard such as 0.0.0.0.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50051")]
    listen: SocketAddr,
    /// Allow connections from other machines. Whoever reaches the port can read and write all files of this user.
    #[arg(long)]
    allow_others: bool,
    /// Folder for intermediate results. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Number of threads. By default the number of processors.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Memory for sorting and joining, of all threads together, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    memory: u32,
}

/// Import archives into a dataset.
///
/// A SOURCE is a file or folder with consensuses, server descriptors, votes and bandwidth files from CollecTor (.tar.xz, .tar, or plain
/// documents, also concatenated), details documents from Onionoo, change tables, a network staged by tornettools, or the data of the
/// authors' speed test. Archives are read without unpacking. Signatures of consensuses are verified only with --verify, others never.
/// Damaged documents are reported and left out. Sources that were imported before are skipped. Another import into the same dataset
/// waits until this one ends. In object storage readers see all of an import at once, when it has completed; if an import on another
/// machine is faster, this one is repeated on its result.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-archive import --to tor.dataset consensuses-2019-07.tar.xz
  flashflow-archive import --to tor.dataset server-descriptors-2019-0*.tar.xz
  flashflow-archive import --to tor.dataset --geoip GeoLite2-Country.mmdb --geoip GeoLite2-ASN.mmdb server-descriptors-2026-07.tar.xz
  flashflow-archive import --to s3://bucket/tor consensuses-2019-07.tar.xz

With --json: one line of `type` imported for each source, and a last one of `type` summary.

Exit status: 0 all documents of all sources are imported, or of kinds that no table needs; 1 a source is truncated, refused or
unreadable, or documents are damaged (all others are imported), or the dataset cannot be written; 2 wrong arguments; 130 interrupted
(completed sources are imported).")]
pub(crate) struct Import {
    /// Files and folders to import.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The dataset: a folder, or s3://BUCKET/PREFIX. It is created if it does not exist.
    #[arg(long, value_name = "DATASET", value_parser = datasets::parser())]
    to: Location,
    #[command(flatten)]
    cache: CacheOptions,
    /// Import sources again that were imported before.
    #[arg(long)]
    again: bool,
    /// Leave out consensuses that are not signed by more than half of the authorities. The authorities are those with certificates in
    /// this file: tor's cached-certs, or an archive of certs from CollecTor.
    #[arg(long, value_name = "CERTIFICATES")]
    verify: Option<PathBuf>,
    /// File in MaxMind's format (.mmdb) with countries or autonomous systems of addresses, for the table `relays`. Can be given several times.
    #[arg(long, value_name = "FILE")]
    geoip: Vec<PathBuf>,
}

/// Compare the files of a dataset with the digests in its manifest.
///
/// All other commands do that as well before they read a dataset, and stop at the first problem. In object storage this command reads
/// all objects, the others only those that the local copy does not have.
#[derive(Debug, Args)]
#[command(
    after_help = "With --json: one line of `type` problem for each damaged, missing or unknown file, and a last one of `type` check.

Exit status: 0 all files are as an import wrote them; 1 a file is damaged, missing or unknown; 2 wrong arguments."
)]
pub(crate) struct CheckCommand {
    /// The dataset: a folder, or s3://BUCKET/PREFIX.
    #[arg(value_parser = datasets::parser())]
    dataset: Location,
}

/// Resources of queries.
#[derive(Clone, Debug, Args)]
struct Resources {
    /// Number of threads. By default the number of processors.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Memory for sorting and joining, in MiB. Queries that need more use temporary files.
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    memory: u32,
    /// Run queries on the cluster of this scheduler (see `scheduler`). All machines of the cluster must have the dataset at the same
    /// path as this machine. --threads is then the number of parts into which the work is divided.
    #[arg(long, value_name = "df://HOST:PORT")]
    cluster: Option<Scheduler>,
}

/// The rows and periods of a computation.
#[derive(Clone, Debug, Args)]
struct Choice {
    /// Use the relays of this origin: tor (consensuses and descriptors), onionoo, membership or synthetic. Needed only if several
    /// origins have bandwidths.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    /// Lengths of the period before each hour; the largest bandwidth in it is the capacity. Each is day, week, month (30 days), year
    /// (365 days), or a number of days such as 14d. By default those of day, week, month and year that are shorter than the dataset.
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
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
  flashflow-archive errors tor.dataset --out errors
  flashflow-archive errors tor.dataset --periods day,week --until 2019-08-01 --json

Exit status: 0 computed; 1 the dataset lacks consensuses or descriptors, or cannot be read; 2 wrong arguments.")]
pub(crate) struct ErrorsCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
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
/// By default the test is that of the paper in August 2019, from the authors' data. With --from and --until it is any interval of the
/// dataset: the five days before its beginning are compared with the five days after. With --simulated it is a test of a modelled network,
/// hour by hour over two weeks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-archive speedtest authors.dataset --out figure-5
  flashflow-archive speedtest --simulated --out simulated
  flashflow-archive speedtest tor.dataset --from 2026-03-01 --until 2026-03-03 --relays measured.txt

Exit status: 0 computed; 1 the dataset has no relays at that time, or cannot be read; 2 wrong arguments.")]
pub(crate) struct SpeedtestCommand {
    /// The dataset: a folder, or s3://BUCKET/PREFIX. With --simulated it is optional: its capacities are those of the authors' test or
    /// of a staged network.
    #[arg(required_unless_present = "simulated", value_parser = datasets::parser())]
    dataset: Option<Location>,
    #[command(flatten)]
    cache: CacheOptions,
    /// Simulate a test of the dataset's relays, or of 6,500 synthetic ones.
    #[arg(long, conflicts_with = "from")]
    simulated: bool,
    /// With --simulated: total traffic as a share of total capacity.
    #[arg(long, value_name = "0..1", default_value_t = 0.35, requires = "simulated")]
    load: f64,
    /// With --simulated: length of the test, 1 to 120 hours.
    #[arg(long, value_name = "HOURS", default_value_t = 51, requires = "simulated",
        value_parser = clap::value_parser!(u32).range(1..=120))]
    test_hours: u32,
    /// With --simulated: seed of all random choices.
    #[arg(long, default_value_t = 1, requires = "simulated")]
    seed: u64,
    /// Begin of the test, UTC.
    #[arg(long, value_name = "TIME", value_parser = times::parse, requires = "until")]
    from: Option<i64>,
    /// End of the test, UTC.
    #[arg(long, value_name = "TIME", value_parser = times::parse, requires = "from")]
    until: Option<i64>,
    /// File with the fingerprints of the relays that were measured, one per line. By default all relays.
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

/// Compute the weight errors of a network that tornettools staged.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 computed; 1 the dataset has no staged network, or cannot be read; 2 wrong arguments."
)]
pub(crate) struct StagingCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    #[command(flatten)]
    resources: Resources,
}

/// Show relays, advertised bandwidth and weights over time.
#[derive(Debug, Args)]
#[command(after_help = "With --json: one line of `type` day for each day.

Exit status: 0 computed; 1 the dataset is empty or cannot be read; 2 wrong arguments.")]
pub(crate) struct SummaryCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    /// Use the relays of this origin.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    #[command(flatten)]
    resources: Resources,
}

/// Write a page with the history of a relay.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 written; 1 the dataset does not have the relay, or a file cannot be read or written; 2 wrong arguments."
)]
pub(crate) struct RelayCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    /// The relay's fingerprint: 40 hex digits.
    fingerprint: RsaId,
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
/// The tables are statuses, descriptors, relays, votes, bandwidths, staging, campaigns, variations, network_hours and relay_hours;
/// relay_hours has the capacities that `errors` uses. To list their columns: SELECT * FROM information_schema.columns. Nulls are
/// last in any order. A query cannot change the dataset.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-archive query tor.dataset 'SELECT COUNT(DISTINCT relay) FROM statuses WHERE is_exit'
  flashflow-archive query tor.dataset --format csv \\
      'SELECT month, MAX(advertised_byte_per_s) FROM descriptors GROUP BY month'

Exit status: 0 done; 1 the query is wrong or failed; 2 wrong arguments.")]
pub(crate) struct QueryCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    /// The query.
    sql: String,
    /// Format of the result; with --json always json.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the result as Parquet to this file, which must not exist.
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    parquet: Option<PathBuf>,
    /// Use the relays of this origin in relay_hours.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    #[command(flatten)]
    resources: Resources,
}

/// Write a table of CSV or JSON lines as Parquet.
///
/// Tables are, for example, those of `flashflow export` and of `flashflow-lab sim run --out`. Types of columns are those of their values in all
/// rows: in CSV, a column of nicknames that are all digits becomes one of numbers; JSON lines keep text.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow export --store bandwidth/store.db --format csv --out measurements.csv
  flashflow-archive convert measurements.csv measurements.parquet

Exit status: 0 written; 1 the table cannot be read, or the file exists or cannot be written; 2 wrong arguments.")]
pub(crate) struct ConvertCommand {
    /// The table: a file that ends in .csv, or in .jsonl.
    table: PathBuf,
    /// The Parquet file, which must not exist.
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

/// Make a synthetic dataset, for tests and capacity planning.
///
/// Relays join and leave. Their advertised bandwidth follows their load, so it is below their capacity.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-archive synth --to year.dataset --relays 8000 --hours 8760

Exit status: 0 made; 1 the dataset cannot be written; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct SynthCommand {
    /// The dataset: a folder, or s3://BUCKET/PREFIX. It is created if it does not exist.
    #[arg(long, value_name = "DATASET", value_parser = datasets::parser())]
    to: Location,
    #[command(flatten)]
    cache: CacheOptions,
    /// Number of relays that run at the same time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    relays: u32,
    /// Number of hourly consensuses.
    #[arg(long, default_value_t = 720, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    hours: u32,
    /// Time of the first consensus.
    #[arg(long, value_name = "TIME", default_value = "2020-01-01", value_parser = times::parse)]
    from: i64,
    /// Mean lifetime of a relay, in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 2000.0)]
    mean_life: f64,
    /// Mean load, as a share of capacity.
    #[arg(long, value_name = "0..1", default_value_t = 0.4)]
    mean_load: f64,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_prints_results_has_a_schema() {
        let all = SCHEMAS
            .iter()
            .map(|(name, schema)| (*name, serde_json::to_string(&schema()).expect("JSON")));
        // `query` prints the rows of its result; the others print none.
        let without = ["query", "scheduler", "executor", "completions", "schema"];
        testbin::schema::assert_complete(&cli::command::<Command>(), &[], &without, all);
    }

    #[test]
    fn help_fits_a_terminal_and_groups_all_commands() {
        testbin::help::assert_help(&cli::command::<Command>(), Command::GROUPS, 10);
    }

    #[test]
    fn the_commands_of_the_documentation_and_of_the_help_parse() {
        testbin::manual::assert_commands_parse(&cli::command::<Command>(), 10);
    }
}
