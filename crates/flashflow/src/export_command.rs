//! `flashflow export`: what the store holds, for other programs.

#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod table;

use clap::{Args, ValueEnum};
use cli::Error;
use netdoc::Fingerprint;
use onion::identity::RsaId;
use rows::{MeasurementLine, PathLine, PeriodLine, RelayLine, SecondLine, SuspicionLine};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use store::{Measurement, Reader, RelayQuery};
use table::{Failed, Told, table};
use terminal::times::time;
use terminal::{Exit, Output};

/// Write what a coordinator's store holds as JSON lines, CSV, or Parquet.
///
/// The coordinator may run meanwhile. Rates are bytes per second, times Unix seconds. Slots are of periods that have begun; seeds
/// of those that are over.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow export --store bandwidth/store.db > measurements.jsonl
  flashflow export --store bandwidth/store.db --what seconds --format csv --since 2026-11-01 --out seconds.csv
  flashflow export --store bandwidth/store.db --what suspicions
  flashflow export --store bandwidth/store.db --what records --relay 8A18112151D6C0361C098DF1A9E7A8507A3F1475

Exit status: 0 done; 1 the store cannot be read, or the file not be written; 2 wrong arguments.")]
pub(crate) struct ExportOptions {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// What to write.
    #[arg(long, value_enum, default_value_t = What::Measurements)]
    what: What,
    /// The format; records are written as JSON lines only, and Parquet only by a program that was built with `--features parquet`.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only measurements that ended at this time or later: Unix seconds, a date, or a date and time in UTC.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<u64>,
    /// Only of this relay.
    #[arg(long, value_name = "FINGERPRINT")]
    relay: Option<Fingerprint>,
    /// Write to this file; without it, to standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A line for each measurement that has ended.
    Measurements,
    /// A line for each of their seconds.
    Seconds,
    /// The whole records, as far as they are kept, with what each kernel said.
    Records,
    /// A line for each relay.
    Relays,
    /// A line for each period, with its seed once it is over.
    Periods,
    /// A line for each two relays that may share a machine, since their estimates rise and fall together; the likeliest first.
    Suspicions,
    /// A line for each relay and measurer: what the measurer saw of its path to the relay the last time it took part.
    Paths,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A JSON value a line.
    Jsonl,
    /// Comma-separated values, with a line of names.
    Csv,
    /// Apache Parquet.
    Parquet,
}

pub(crate) fn run(options: &ExportOptions, output: &Output) -> Result<Exit, Error> {
    if options.what == What::Records && options.format != Format::Jsonl {
        return Err(Error::Usage("records are no table: use --format jsonl".to_owned()));
    }
    if options.format == Format::Parquet && cfg!(not(feature = "parquet")) {
        let problem =
            "--format parquet: this program was built without; cargo build --features parquet";
        return Err(Error::Usage(problem.to_owned()));
    }
    let reader = Reader::open(&options.store)?;
    let lines = match &options.out {
        None => write(options, &reader, io::stdout()),
        Some(path) => {
            let failed = |source| file_error(path, source);
            if is_same_file(path, &options.store) {
                let problem = "--out names the store itself, which would be gone";
                return Err(Error::Usage(problem.to_owned()));
            }
            let file = File::create(path).map_err(failed)?;
            write(options, &reader, file)
        }
    };
    let lines = match lines {
        // A reader that went away, as `head` does, is no error of ours.
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
    let of = |path: &Path| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    of(one).is_some_and(|it| of(other) == Some(it))
}

fn file_error(path: &Path, source: io::Error) -> Error {
    Error::File { what: "write", path: path.to_owned(), source }
}

/// Says how many lines there were.
fn write(options: &ExportOptions, reader: &Reader, out: impl Write + Send) -> Result<u64, Failed> {
    let relay = options.relay.map(|relay| RsaId(*relay.as_bytes()));
    let format = options.format;
    match options.what {
        What::Relays => table(format, out, |tell| {
            let query = RelayQuery { most: usize::MAX, ascending: true, ..RelayQuery::default() };
            let found = reader.relays(&query)?.relays;
            let wanted = found.iter().filter(|row| relay.is_none_or(|relay| relay == row.rsa));
            wanted.map(RelayLine::from).try_for_each(tell)
        }),
        What::Periods => table(format, out, |tell| {
            reader.passes(usize::MAX)?.iter().map(PeriodLine::from).try_for_each(tell)
        }),
        What::Suspicions => table(format, out, |tell| {
            reader.suspects(relay)?.iter().map(SuspicionLine::from).try_for_each(tell)
        }),
        What::Paths => table(format, out, |tell| {
            let found = reader.paths()?;
            let wanted = found.iter().filter(|path| relay.is_none_or(|relay| relay == path.relay));
            wanted.map(PathLine::from).try_for_each(tell)
        }),
        What::Measurements => table(format, out, |tell| {
            each(options, reader, relay, |it| tell(MeasurementLine::from(it)))
        }),
        What::Seconds => table(format, out, |tell| {
            each(options, reader, relay, |it| {
                it.seconds.iter().map(|second| SecondLine::of(it, second)).try_for_each(&mut *tell)
            })
        }),
        What::Records => records(options, reader, relay, out),
    }
}

/// All measurements that are asked for, one by one: memory holds one at a time.
fn each(
    options: &ExportOptions,
    reader: &Reader,
    relay: Option<RsaId>,
    mut tell: impl FnMut(&Measurement) -> Told,
) -> Told {
    let mut told = Ok(());
    reader.each_measurement(options.since.unwrap_or(0), relay, |measurement| {
        told = tell(&measurement);
        told.is_ok()
    })?;
    told
}

/// Whole records, which are no rows of a table.
fn records(
    options: &ExportOptions,
    reader: &Reader,
    relay: Option<RsaId>,
    out: impl Write,
) -> Result<u64, Failed> {
    let (mut out, mut count) = (BufWriter::new(out), 0);
    each(options, reader, relay, |measurement| {
        let Some(record) = reader.record(measurement.id)? else { return Ok(()) };
        let mut value: Value = json!(record);
        value["period_unix_s"] = json!(measurement.period_unix_s);
        value["turn"] = json!(measurement.number);
        serde_json::to_writer(&mut out, &value).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        count += 1;
        Ok(())
    })?;
    out.flush()?;
    Ok(count)
}
