//! `flashflow export`: exports the contents of a store for other programs.

use clap::{Args, ValueEnum};
use cli::Error;
use files::Access;
use onion::identity::RsaId;
use report::rows::{write_csv, write_json_lines};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use store::rows::{MeasurementLine, PathLine, PeriodLine, RelayLine, SecondLine, SuspicionLine};
use store::{Measurement, Reader, RelayQuery, StoreError};
use terminal::times::time;
use terminal::{Exit, Output};

/// Export a coordinator's store as JSON lines or CSV.
///
/// The coordinator may be running. Rates are in bytes per second, times in Unix seconds. Slots are exported once their period has
/// begun, seeds once it has ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow export --store bandwidth/store.db > measurements.jsonl
  flashflow export --store bandwidth/store.db --what seconds --format csv --since 2026-11-01 --out seconds.csv
  flashflow export --store bandwidth/store.db --what suspicions
  flashflow export --store bandwidth/store.db --what records --relay 8A18112151D6C0361C098DF1A9E7A8507A3F1475

Exit status: 0 done; 1 the store cannot be read, or the file cannot be written; 2 wrong arguments.")]
pub(crate) struct ExportOptions {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Table to export.
    #[arg(long, value_enum, default_value_t = What::Measurements)]
    what: What,
    /// Output format. Records can be exported as JSON lines only. `flashflow-archive convert` makes Parquet of CSV.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only measurements that ended at this time or later: Unix seconds, a date, or a date and time in UTC.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<u64>,
    /// Only rows of this relay.
    #[arg(long, value_name = "FINGERPRINT")]
    relay: Option<RsaId>,
    /// Output file. By default standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// One row per completed measurement.
    Measurements,
    /// One row per second of a measurement.
    Seconds,
    /// Complete records, as far as they are retained, with the kernel's statistics of each measurer.
    Records,
    /// One row per relay.
    Relays,
    /// One row per period.
    Periods,
    /// One row per pair of relays that may share a host, because their estimates are correlated; the most likely first.
    Suspicions,
    /// One row per relay and measurer: the properties of the path between them in the last measurement.
    Paths,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// The reason that an export ended early.
enum Failed {
    Store(StoreError),
    Write(io::Error),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// The result of writing a row.
type Emitted = Result<(), Failed>;

pub(crate) fn run(options: &ExportOptions, output: &Output) -> Result<Exit, Error> {
    if options.what == What::Records && options.format != Format::Jsonl {
        return Err(Error::Usage("records are not a table: use --format jsonl".to_owned()));
    }
    let reader = Reader::open(&options.store)?;
    let lines = match &options.out {
        None => write(options, &reader, io::stdout()),
        Some(path) => {
            if is_same_file(path, &options.store) {
                let problem = "--out names the store itself, which would be overwritten";
                return Err(Error::Usage(problem.to_owned()));
            }
            files::replace_with(path, Access::Umask, |file| write(options, &reader, file))
        }
    };
    let lines = match lines {
        // The reader closed the pipe, as `head` does.
        Err(Failed::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(Exit::Done);
        }
        Err(Failed::Write(error)) => {
            let path = options.out.clone().unwrap_or_else(|| PathBuf::from("standard output"));
            return Err(file_error(&path, error));
        }
        Err(Failed::Store(error)) => return Err(error.into()),
        Ok(lines) => lines,
    };
    output.step(format!("{lines} lines"));
    Ok(Exit::Done)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let of =
        |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    of(one).is_some_and(|file| of(other) == Some(file))
}

fn file_error(path: &Path, source: io::Error) -> Error {
    Error::File { what: "write", path: path.to_owned(), source }
}

/// Writes the table. Returns the number of rows.
fn write(options: &ExportOptions, reader: &Reader, out: impl Write) -> Result<u64, Failed> {
    let relay = options.relay;
    let format = options.format;
    match options.what {
        What::Relays => table(format, out, |emit| {
            let query = RelayQuery { most: usize::MAX, ascending: true, ..RelayQuery::default() };
            let found = reader.relays(&query)?.relays;
            let wanted = found.iter().filter(|row| relay.is_none_or(|relay| relay == row.rsa));
            wanted.map(RelayLine::from).try_for_each(emit)
        }),
        What::Periods => table(format, out, |emit| {
            reader.periods(usize::MAX)?.iter().map(PeriodLine::from).try_for_each(emit)
        }),
        What::Suspicions => table(format, out, |emit| {
            reader.suspects(relay)?.iter().map(SuspicionLine::from).try_for_each(emit)
        }),
        What::Paths => table(format, out, |emit| {
            let found = reader.paths()?;
            let wanted = found.iter().filter(|path| relay.is_none_or(|relay| relay == path.relay));
            wanted.map(PathLine::from).try_for_each(emit)
        }),
        What::Measurements => table(format, out, |emit| {
            let country = reader.scanner_country()?;
            each(options, reader, relay, |measurement| {
                emit(MeasurementLine::new(measurement, country.as_deref()))
            })
        }),
        What::Seconds => table(format, out, |emit| {
            each(options, reader, relay, |measurement| {
                measurement
                    .seconds
                    .iter()
                    .map(|second| SecondLine::new(measurement, second))
                    .try_for_each(&mut *emit)
            })
        }),
        What::Records => write_json_lines(out, |emit| {
            each(options, reader, relay, |measurement| {
                let Some(record) = reader.record(measurement.id)? else { return Ok(()) };
                let mut value: Value = json!(record);
                value["period_unix_s"] = json!(measurement.period_unix_s);
                value["turn"] = json!(measurement.number);
                emit(value)
            })
        }),
    }
}

/// Writes the rows that `feed` passes to its argument. Returns their number.
fn table<T: Serialize>(
    format: Format,
    out: impl Write,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Emitted) -> Emitted,
) -> Result<u64, Failed> {
    match format {
        Format::Jsonl => write_json_lines(out, feed),
        Format::Csv => write_csv(out, feed),
    }
}

/// Calls `emit` for each selected measurement. One measurement at a time is in memory.
fn each(
    options: &ExportOptions,
    reader: &Reader,
    relay: Option<RsaId>,
    mut emit: impl FnMut(&Measurement) -> Emitted,
) -> Emitted {
    let mut emitted = Ok(());
    reader.each_measurement(options.since.unwrap_or(0), relay, |measurement| {
        emitted = emit(&measurement);
        emitted.is_ok()
    })?;
    emitted
}
