//! `flashflow export`: what the store holds, for other programs.

use crate::error::Error;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use netdoc::Fingerprint;
use onion::Rate;
use onion::identity::RsaId;
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use store::{Measurement, MeasurerPath, Reader, RelayQuery, RelayRow, Second};
use terminal::{Exit, Output};

/// Write what a coordinator's store holds as JSON lines or CSV.
///
/// The coordinator may run meanwhile. Rates are bytes per second, times Unix seconds. Slots are of periods that have begun; seeds
/// of those that are over.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow export --store bandwidth/store.db > measurements.jsonl
  flashflow export --store bandwidth/store.db --what seconds --format csv --since 2026-11-01 --out seconds.csv
  flashflow export --store bandwidth/store.db --what records --relay 8A18112151D6C0361C098DF1A9E7A8507A3F1475

Exit status: 0 done; 1 the store cannot be read, or the file not be written; 2 wrong arguments.")]
pub(crate) struct ExportOptions {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// What to write.
    #[arg(long, value_enum, default_value_t = What::Measurements)]
    what: What,
    /// The format; records are written as JSON lines only.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only measurements that ended at this time or later: a date, or a time as in RFC 3339.
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
    /// A line for each relay and measurer: what the measurer saw of its path to the relay the last time it took part.
    Paths,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A JSON value a line.
    Jsonl,
    /// Comma-separated values, with a line of names.
    Csv,
}

/// A measurement, without its seconds.
#[derive(Serialize)]
struct MeasurementLine<'m> {
    fingerprint: String,
    nickname: &'m str,
    period_unix_s: u64,
    turn: u32,
    slot: Option<u32>,
    started_unix_s: u64,
    ended_unix_s: Option<u64>,
    state: &'static str,
    mode: Option<coordinator::Mode>,
    capacity_byte_s: Option<u64>,
    rounds: u32,
    cause: Option<&'m str>,
    reason: Option<&'m str>,
    blame: Option<&'m str>,
    is_final: bool,
}

/// A second of one.
#[derive(Serialize)]
struct SecondLine {
    fingerprint: String,
    ended_unix_s: Option<u64>,
    turn: u32,
    round: u32,
    second: u32,
    bytes: u64,
    client_bytes: u64,
    counts: bool,
    limiter: &'static str,
}

#[derive(Serialize)]
struct RelayLine<'r> {
    fingerprint: String,
    nickname: &'r str,
    address: &'r str,
    first_seen_unix_s: u64,
    last_seen_unix_s: u64,
    left_out: &'r str,
    capacity_byte_s: Option<u64>,
    estimated_unix_s: Option<u64>,
    mode: Option<coordinator::Mode>,
    is_conclusive: Option<bool>,
    last_state: Option<&'static str>,
    last_ended_unix_s: Option<u64>,
    last_cause: Option<&'r str>,
}

#[derive(Serialize)]
struct PathLine<'p> {
    fingerprint: String,
    /// Its public key.
    measurer: &'p str,
    seen_unix_s: u64,
    rtt_ms: Option<f64>,
    loss_ppm: Option<u32>,
    held_back_byte_s: Option<u64>,
}

#[derive(Serialize)]
struct PeriodLine {
    begin_unix_s: u64,
    length_s: u64,
    slot_s: u64,
    seed: Option<String>,
    measurements: u64,
    relays: u64,
    failed: u64,
}

pub(crate) fn run(options: &ExportOptions, output: &Output) -> Result<Exit, Error> {
    if options.what == What::Records && options.format == Format::Csv {
        return Err(Error::Usage("records are no table: use --format jsonl".to_owned()));
    }
    let reader = Reader::open(&options.store)?;
    let lines = match &options.out {
        None => write(options, &reader, io::stdout().lock()),
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

enum Failed {
    Store(store::StoreError),
    Write(io::Error),
}

impl From<store::StoreError> for Failed {
    fn from(error: store::StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Lines of one of the formats.
enum Lines<W: Write> {
    Json(BufWriter<W>),
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> Lines<W> {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        match self {
            Self::Json(out) => {
                serde_json::to_writer(&mut *out, line)?;
                out.write_all(b"\n")
            }
            Self::Csv(out) => out.serialize(line).map_err(|error| match error.into_kind() {
                csv::ErrorKind::Io(error) => error,
                other => io::Error::other(format!("{other:?}")),
            }),
        }
    }

    fn end(mut self) -> io::Result<()> {
        match &mut self {
            Self::Json(out) => out.flush(),
            Self::Csv(out) => out.flush(),
        }
    }
}

fn write(options: &ExportOptions, reader: &Reader, out: impl Write) -> Result<u64, Failed> {
    let mut lines = match options.format {
        Format::Jsonl => Lines::Json(BufWriter::new(out)),
        Format::Csv => Lines::Csv(Box::new(csv::Writer::from_writer(out))),
    };
    let mut count = 0;
    let relay = options.relay.map(|relay| RsaId(*relay.as_bytes()));
    match options.what {
        What::Relays => {
            let query = RelayQuery { most: usize::MAX, ascending: true, ..RelayQuery::default() };
            let wanted = |row: &&RelayRow| relay.is_none_or(|relay| relay == row.rsa);
            for row in reader.relays(&query)?.relays.iter().filter(wanted) {
                lines.line(&relay_line(row))?;
                count += 1;
            }
        }
        What::Periods => {
            for pass in reader.passes(usize::MAX)? {
                lines.line(&PeriodLine {
                    begin_unix_s: pass.period.begin_unix_s,
                    length_s: pass.period.length_s,
                    slot_s: pass.period.slot_s,
                    seed: pass.period.seed.map(hex::encode),
                    measurements: pass.measurements,
                    relays: pass.relays,
                    failed: pass.failed,
                })?;
                count += 1;
            }
        }
        What::Paths => {
            let wanted = |path: &&MeasurerPath| relay.is_none_or(|relay| relay == path.relay);
            for MeasurerPath { relay, measurer, path, seen_unix_s } in
                reader.paths()?.iter().filter(wanted)
            {
                lines.line(&PathLine {
                    fingerprint: relay.to_string(),
                    measurer,
                    seen_unix_s: *seen_unix_s,
                    rtt_ms: path.rtt.map(|it| it.as_secs_f64() * 1000.0),
                    loss_ppm: path.loss_ppm,
                    held_back_byte_s: path.held_back.map(Rate::as_byte_per_s),
                })?;
                count += 1;
            }
        }
        What::Measurements | What::Seconds | What::Records => {
            let mut failed = None;
            reader.each_measurement(options.since.unwrap_or(0), relay, |measurement| {
                let told = tell(options.what, reader, &measurement, &mut lines);
                match told {
                    Ok(told) => count += told,
                    Err(error) => failed = Some(error),
                }
                failed.is_none()
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }
    lines.end()?;
    Ok(count)
}

/// Says how many lines there were.
fn tell(
    what: What,
    reader: &Reader,
    measurement: &Measurement,
    lines: &mut Lines<impl Write>,
) -> Result<u64, Failed> {
    match what {
        What::Seconds => {
            for second in &measurement.seconds {
                lines.line(&second_line(measurement, second))?;
            }
            Ok(measurement.seconds.len() as u64)
        }
        What::Records => {
            let Some(record) = reader.record(measurement.id)? else { return Ok(0) };
            let mut value: Value = json!(record);
            value["period_unix_s"] = json!(measurement.period_unix_s);
            value["turn"] = json!(measurement.number);
            lines.line(&value)?;
            Ok(1)
        }
        What::Measurements | What::Relays | What::Periods | What::Paths => {
            lines.line(&measurement_line(measurement))?;
            Ok(1)
        }
    }
}

fn measurement_line(it: &Measurement) -> MeasurementLine<'_> {
    MeasurementLine {
        fingerprint: it.relay.to_string(),
        nickname: &it.nickname,
        period_unix_s: it.period_unix_s,
        turn: it.number,
        slot: it.slot,
        started_unix_s: it.started_unix_s,
        ended_unix_s: it.ended_unix_s,
        state: it.state.word(),
        mode: it.mode,
        capacity_byte_s: it.capacity.map(Rate::as_byte_per_s),
        rounds: it.rounds,
        cause: it.cause.as_deref(),
        reason: it.reason.as_deref(),
        blame: it.blame.as_deref(),
        is_final: it.is_final,
    }
}

fn second_line(it: &Measurement, second: &Second) -> SecondLine {
    SecondLine {
        fingerprint: it.relay.to_string(),
        ended_unix_s: it.ended_unix_s,
        turn: it.number,
        round: second.round,
        second: second.second,
        bytes: second.bytes,
        client_bytes: second.client_bytes,
        counts: second.counts,
        limiter: second.limiter.word(),
    }
}

fn relay_line(it: &RelayRow) -> RelayLine<'_> {
    RelayLine {
        fingerprint: it.rsa.to_string(),
        nickname: &it.nickname,
        address: &it.address,
        first_seen_unix_s: it.first_seen_unix_s,
        last_seen_unix_s: it.last_seen_unix_s,
        left_out: &it.left_out,
        capacity_byte_s: it.capacity.map(Rate::as_byte_per_s),
        estimated_unix_s: it.estimated_unix_s,
        mode: it.mode,
        is_conclusive: it.is_conclusive,
        last_state: it.last_state.map(store::State::word),
        last_ended_unix_s: it.last_ended_unix_s,
        last_cause: it.last_cause.as_deref(),
    }
}

/// A date, which is its midnight in UTC, or a time.
fn time(text: &str) -> Result<u64, String> {
    let time = text.parse::<Timestamp>().or_else(|_| format!("{text}T00:00:00Z").parse());
    let time = time.map_err(|_| {
        format!("{text} is no date (2026-11-01) and no time (2026-11-01T06:00:00Z)")
    })?;
    u64::try_from(time.as_second()).map_err(|_| format!("{text} is before 1970"))
}
