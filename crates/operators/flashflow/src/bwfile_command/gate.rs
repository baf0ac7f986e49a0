//! `flashflow bwfile gate`: whether a bandwidth file should replace the previous one.

use authority::{Gate, USUAL_TABLE};
use clap::Args;
use cli::Error;
use documents::countries::Countries;
use documents::gate::{self, Check, Comparison, Limits, Others, read_votes};
use documents::{UnreadPlace, consensus, read, read_places};
use link::unix_time_s;
use netdoc::BandwidthFile;
use report::plural;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use store::Reader;
use terminal::times::time;
use terminal::{Exit, Output};

/// Check whether a bandwidth file should replace the previous one.
///
/// Each check has a figure and a limit. A check is made if its data are given: the previous file, a consensus, votes of other
/// authorities, the coordinator's store, files of teams at other places. The coordinator makes the same checks if its configuration has a section [gate].
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile gate 20261126-150000.v3bw --previous latest.v3bw \\
      --consensus cached-consensus
  flashflow bwfile gate latest.v3bw --votes votes --own moria1 --store store.db --strict
  flashflow bwfile gate latest.v3bw --config coordinator.toml --limit age_max_h=12 --prometheus
  flashflow bwfile gate latest.v3bw --place fr.v3bw --place us.v3bw \\
      --limit place_ratio_max_factor=1.1

Without --votes, the measurements of other authorities are the weights of the consensus, which contain
our own vote. Files may be compressed with gzip or zlib, and one may be `-`, which is standard input.

Exit status: 0 the file passes; 1 a check fails, or with --strict one was not made; 2 wrong arguments, or
a file cannot be read.")]
pub(super) struct GateOptions {
    /// The bandwidth file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file that it would replace.
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// Consensus of that time.
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Votes of authorities: a folder, or a file with one or more votes; may be repeated.
    #[arg(long, value_name = "PATH")]
    votes: Vec<PathBuf>,
    /// Nickname or v3 identity of the authority whose vote does not count, because it is based on an earlier file.
    #[arg(long, value_name = "AUTHORITY", requires = "votes")]
    own: Option<String>,
    /// The coordinator's store, which has the round trips to relays.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Countries of addresses: tor's geoip file, or a MaxMind file. By default /usr/share/tor/geoip, if it exists.
    #[arg(long, value_name = "FILE")]
    geoip: Vec<PathBuf>,
    /// Bandwidth file of a team at another place; may be repeated. Its name is the `scanner_country` in its header, or else its path.
    #[arg(long, value_name = "FILE")]
    place: Vec<PathBuf>,
    /// A coordinator's configuration, whose section [gate] has the limits.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a limit, such as total_fall_max_percent=30; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<String>,
    /// Check the age as of this time: Unix seconds, a date, or a date and time in UTC. By default the current time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// Fail if a check was not made.
    #[arg(long)]
    strict: bool,
    /// Print metrics in Prometheus' text format instead.
    #[arg(long)]
    prometheus: bool,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A check.
    Check(&'a Check),
    /// The file.
    Summary {
        /// Whether it passes.
        passed: bool,
        /// The number of checks that failed.
        failed: usize,
        /// The number of checks that were not made.
        not_checked: usize,
        /// The time of the check, in Unix seconds.
        checked_unix_s: u64,
    },
}

pub(super) fn run(options: &GateOptions, output: &Output) -> Result<Exit, Error> {
    let now = options.at.unwrap_or_else(unix_time_s);
    let limits = limits(options)?;
    let file = read(&options.file, "read")?;
    let previous = options.previous.as_deref().map(previous).transpose()?;
    let consensus = options.consensus.as_deref().map(|path| consensus(path, now)).transpose()?;
    let mut votes = Vec::new();
    for path in &options.votes {
        votes.extend(read_votes(path)?);
    }
    let of_votes = Others::from_votes(&votes, options.own.as_deref());
    if of_votes.is_none() && !options.votes.is_empty() {
        let problem = "no vote in --votes has a measurement, or all are of --own".to_owned();
        return Err(Error::Failed(problem));
    }
    let others = of_votes.or_else(|| consensus.as_ref().and_then(Others::from_consensus));
    let round_trips_ms = match &options.store {
        Some(path) => Some(Reader::open(path)?.mean_round_trips_ms()?),
        None => None,
    };
    let usual = Path::new(USUAL_TABLE);
    let countries = match &options.geoip[..] {
        [] if usual.exists() => Some(Countries::read(&[usual.to_owned()])?),
        [] => None,
        tables => Some(Countries::read(tables)?),
    };
    let places = read_places(&options.place).into_iter().map(|place| place.map(Ok));
    let places: Result<Vec<_>, UnreadPlace> = places.collect();
    let places = places.map_err(|unread| unread.error)?;
    let with = Comparison {
        previous: previous.as_deref(),
        consensus: consensus.as_ref(),
        others: others.as_ref(),
        round_trips_ms: round_trips_ms.as_ref(),
        countries: countries.as_ref(),
        places: &places,
    };
    let outcome = gate::judge(&file, now, with, &limits);
    let (failed, not_checked) = (outcome.failed().count(), outcome.not_checked());
    if options.prometheus {
        let mut text = metrics::Text::default();
        dashboard::gate_metrics(&mut text, Some(&outcome));
        output.text(text.into_string().trim_end());
    } else {
        for check in &outcome.checks {
            output.result(check, || Line::Check(check));
        }
        let verdict = if outcome.passed { "passes" } else { "does not pass" };
        let checks = plural(outcome.checks.len() as u64, "check");
        let text = format!(
            "the file {verdict}: of {checks}, {failed} failed and {not_checked} were not made"
        );
        output.result(text, || Line::Summary {
            passed: outcome.passed,
            failed,
            not_checked,
            checked_unix_s: outcome.checked_unix_s,
        });
    }
    let passes = outcome.passed && (not_checked == 0 || !options.strict);
    Ok(if passes { Exit::Done } else { Exit::Failed })
}

/// The previous file, which must be one.
fn previous(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = read(path, "read the previous file")?;
    BandwidthFile::parse(&bytes).map_err(|error| super::bad(path, &error.to_string()))?;
    Ok(bytes)
}

/// The limits of the configuration, and those of the command line over them.
fn limits(options: &GateOptions) -> Result<Limits, Error> {
    let limits = match &options.config {
        Some(path) => configured(path)?,
        None => Limits::default(),
    };
    // Cannot fail: all fields are numbers.
    let mut values = serde_json::to_value(limits).unwrap_or_default();
    for setting in &options.limit {
        let parsed = setting.split_once('=').and_then(|(name, value)| {
            let number: Value = value.parse::<f64>().ok().map(Value::from)?;
            // A number of relays is a whole one.
            Some((name, value.parse::<u64>().map_or(number, Value::from)))
        });
        let Some((name, value)) = parsed else {
            let problem = format!("--limit {setting}: write NAME=NUMBER, such as age_max_h=12");
            return Err(Error::Usage(problem));
        };
        let Some(known) = values.get_mut(name) else {
            let names = values.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Error::Usage(format!(
                "--limit {setting}: there is no such limit: {names}"
            )));
        };
        *known = value;
    }
    let limits: Limits = serde_json::from_value(values)
        .map_err(|error| Error::Usage(format!("--limit: {error}")))?;
    limits.validate().map_err(|problem| Error::Usage(format!("--limit: {problem}")))?;
    Ok(limits)
}

fn configured(path: &Path) -> Result<Limits, Error> {
    let failed =
        |source| Error::File { what: "read the configuration", path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| super::bad(path, error.to_string().trim_end()))?;
    match table.get("gate") {
        Some(toml::Value::Table(section)) => {
            let resolve = |file: &Path| path.parent().unwrap_or(Path::new("")).join(file);
            let gate = Gate::new(section.clone(), &resolve);
            Ok(gate.map_err(|problem| super::bad(path, &problem))?.limits)
        }
        _ => Err(super::bad(path, "there is no section [gate]")),
    }
}
