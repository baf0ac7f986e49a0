//! `flashflow bwfile`: checks, shows and compares bandwidth files.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod gate;

use clap::{Args, Subcommand};
use cli::Error;
use documents::read;
use netdoc::bwfile::{
    BandwidthFile, Difference, FileVerdict, Header, HeaderForm, HeaderKey, Report,
};
use netdoc::input::without_annotations;
use netdoc::{RsaId, check_as_tor};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use terminal::times::readable;
use terminal::{Exit, Output};

/// Check, judge, show, compare and explain bandwidth files.
#[derive(Debug, Args)]
pub(crate) struct BwfileOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(check::CheckOptions),
    Gate(gate::GateOptions),
    Show(ShowOptions),
    Diff(DiffOptions),
    Explain(explain::ExplainOptions),
}

/// Show the weights that tor would vote for, the largest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile show latest.v3bw
  flashflow bwfile show latest.v3bw --relay 8A18112151D6C0361C098DF1A9E7A8507A3F1475
  flashflow bwfile show latest.v3bw --relay MyRelay
  flashflow bwfile show latest.v3bw --header
  xz -dc 2026-11-26-15-00-00-bandwidth.xz | flashflow bwfile show -

FILE may be `-`, which is standard input, and may be compressed with gzip or zlib.

Exit status: 0 done; 1 the file cannot be read, or the relay is not in it; 2 wrong arguments.")]
struct ShowOptions {
    /// The bandwidth file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show only this relay, with all values of its line: fingerprint or unique nickname.
    #[arg(long, value_name = "RELAY")]
    relay: Option<String>,
    /// Show only the header, with the meaning of each key.
    #[arg(long, conflicts_with = "relay")]
    header: bool,
}

/// Show how the votes with two files would differ.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow bwfile diff 20261121-120000.v3bw latest.v3bw

Exit status: 0 no difference; 1 they differ; 2 a file cannot be read, or wrong arguments.")]
struct DiffOptions {
    /// The earlier file.
    #[arg(value_name = "EARLIER")]
    earlier: PathBuf,
    /// The later file.
    #[arg(value_name = "LATER")]
    later: PathBuf,
}

/// A line of `show` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ShowLine<'a> {
    /// A relay.
    Relay {
        /// The relay.
        fingerprint: String,
        /// Its nickname in the file.
        nickname: Option<String>,
        /// The bandwidth that tor would vote for; `null` without a vote.
        voted_kb_s: Option<u32>,
        /// Its line; with `--relay` only.
        #[serde(flatten)]
        line: Option<RelayLine<'a>>,
    },
    /// A line of the header; with `--header` only.
    Header {
        /// The key.
        key: &'a str,
        /// Its value.
        value: &'a str,
        /// Its meaning; `null` for an unknown key.
        meaning: Option<&'static str>,
    },
    /// The whole file.
    Summary {
        /// The number of relays with a vote.
        relays: usize,
        /// The number of lines without a vote.
        without_vote: usize,
        /// The sum of the votes.
        total_kb_s: u64,
        /// The software that wrote it.
        software: &'a str,
        /// The version of its format.
        version: Option<&'a str>,
        /// The time of its newest result, in Unix seconds.
        timestamp_unix_s: u64,
    },
}

/// The values of a relay's line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RelayLine<'a> {
    /// Its value `bw`.
    bw_kb_s: u64,
    /// When it was measured, in Unix seconds.
    measured_unix_s: Option<u64>,
    /// Whether it was not measured.
    unmeasured: bool,
    /// Whether there are too few results.
    under_min_report: bool,
    /// Other values.
    extra: &'a BTreeMap<&'a str, &'a str>,
}

/// A line of `diff` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum DiffLine {
    /// A relay whose vote differs.
    Relay {
        /// The relay.
        fingerprint: String,
        /// The vote with the earlier file; `null` without one.
        before_kb_s: Option<u32>,
        /// The vote with the later file; `null` without one.
        now_kb_s: Option<u32>,
        /// The later vote divided by the earlier one.
        ratio: Option<f64>,
    },
    /// A key of the header whose value differs. Times are left out.
    Header {
        /// The key.
        key: String,
        /// The value in the earlier file; `null` without one.
        before: Option<String>,
        /// The value in the later file; `null` without one.
        now: Option<String>,
    },
    /// All relays.
    Summary {
        /// Relays in the later file only.
        added: usize,
        /// Relays in the earlier file only.
        removed: usize,
        /// Relays whose votes differ.
        changed: usize,
        /// Relays with the same vote.
        same: usize,
        /// The sum of the votes with the earlier file.
        total_before_kb_s: u64,
        /// The sum of the votes with the later file.
        total_now_kb_s: u64,
    },
}

pub(crate) fn run(options: &BwfileOptions, output: &Output) -> Result<Exit, Error> {
    match &options.action {
        Action::Check(options) => check::run(options, output),
        Action::Gate(options) => gate::run(options, output).or_else(|error| {
            // Status 1 means that the file does not pass.
            output.error(&error);
            Ok(Exit::Trouble)
        }),
        Action::Show(options) => show(options, output),
        Action::Diff(options) => diff(options, output).or_else(|error| {
            // As in diff(1), status 1 means that the files differ.
            output.error(&error);
            Ok(Exit::Trouble)
        }),
        Action::Explain(options) => explain::run(options, output),
    }
}

fn show(options: &ShowOptions, output: &Output) -> Result<Exit, Error> {
    let bytes = read(&options.file, "read")?;
    let report = as_when_made(&bytes);
    let parsed =
        BandwidthFile::parse(&bytes).map_err(|error| bad(&options.file, &error.to_string()))?;
    if options.header {
        show_header(&parsed.file.header, output);
        return Ok(Exit::Done);
    }
    let lines: BTreeMap<_, _> =
        parsed.file.relays.iter().map(|relay| (relay.node_id, relay)).collect();
    if let Some(name) = &options.relay {
        let line =
            parsed.file.find(name).map_err(|error| bad(&options.file, &error.to_string()))?;
        let relay = line.node_id;
        let voted = report.relays.get(&relay);
        let extra: BTreeMap<&str, &str> =
            line.extra.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let pairs: String = extra.iter().map(|(key, value)| format!("\n  {key}={value}")).collect();
        let weight = match voted {
            Some(bw) => format!("{bw} KB/s"),
            None => format!("no vote (bw={})", line.bw_kb_s),
        };
        let measured = line.time.map(|time| format!(", measured at {}", readable(time)));
        let measured = measured.unwrap_or_default();
        let name = line.nick.map_or_else(String::new, |nick| format!(" ({nick})"));
        output.result(format!("{relay}{name}: {weight}{measured}{pairs}"), || ShowLine::Relay {
            fingerprint: relay.to_string(),
            nickname: line.nick.map(|nick| nick.to_string()),
            voted_kb_s: voted.copied(),
            line: Some(RelayLine {
                bw_kb_s: line.bw_kb_s,
                measured_unix_s: line.time,
                unmeasured: line.unmeasured,
                under_min_report: line.under_min_report,
                extra: &extra,
            }),
        });
        return Ok(Exit::Done);
    }
    let mut relays: Vec<(&RsaId, &u32)> = report.relays.iter().collect();
    relays.sort_by_key(|(relay, bw)| (std::cmp::Reverse(**bw), **relay));
    for (relay, bw) in &relays {
        let nick = lines.get(relay).and_then(|line| line.nick).map(|nick| nick.to_string());
        output.result(format!("{bw:>10} KB/s  {relay}  {}", nick.as_deref().unwrap_or("")), || {
            let (fingerprint, nickname) = (relay.to_string(), nick.clone());
            ShowLine::Relay { fingerprint, nickname, voted_kb_s: Some(**bw), line: None }
        });
    }
    let (total, file) = (total(&report.relays), &parsed.file);
    let (software, made) = (file.header.software.as_deref().unwrap_or("torflow"), file.timestamp);
    let without = file.relays.len().saturating_sub(relays.len());
    let in_words = format!(
        "{} with {total} KB/s in all, and {without} without a vote; by {software}, newest result {}",
        report::plural(relays.len() as u64, "relay"),
        readable(made)
    );
    output.result(in_words, || ShowLine::Summary {
        relays: relays.len(),
        without_vote: without,
        total_kb_s: total,
        software,
        version: file.header.version.as_deref(),
        timestamp_unix_s: made,
    });
    Ok(Exit::Done)
}

fn show_header(header: &Header, output: &Output) {
    for (key, value) in header.pairs() {
        let known = HeaderKey::find(key);
        let meaning = known.map(|known| known.meaning);
        let in_words = meaning.unwrap_or("unknown key");
        output.result(format!("{key}={value}  # {in_words}"), || ShowLine::Header {
            key,
            value: &value,
            meaning,
        });
    }
}

/// Shows the keys whose values differ. Times always do.
fn show_header_differences(earlier: &Header, later: &Header, output: &Output) {
    let values = |header: &Header| -> BTreeMap<String, String> {
        let pairs = header.pairs().map(|(key, value)| (key.to_owned(), value.into_owned()));
        let is_time = |key: &str| {
            HeaderKey::find(key).is_some_and(|known| known.form == HeaderForm::DateTime)
        };
        pairs.filter(|(key, _)| !is_time(key)).collect()
    };
    let (earlier, later) = (values(earlier), values(later));
    let keys: BTreeSet<&String> = earlier.keys().chain(later.keys()).collect();
    for key in keys {
        let (before, now) = (earlier.get(key), later.get(key));
        if before != now {
            let word =
                |value: Option<&String>| value.map_or("none", |value| value.as_str()).to_owned();
            output.result(format!("header: {key}: {} to {}", word(before), word(now)), || {
                let (before, now) = (before.cloned(), now.cloned());
                DiffLine::Header { key: key.clone(), before, now }
            });
        }
    }
}

fn diff(options: &DiffOptions, output: &Output) -> Result<Exit, Error> {
    let votes = |path: &Path| {
        let bytes = read(path, "read")?;
        let parsed = BandwidthFile::parse(&bytes).map_err(|error| bad(path, &error.to_string()))?;
        let report = as_when_made(&bytes);
        match report.verdict {
            FileVerdict::Read => Ok((report, parsed.file.header)),
            _ => Err(bad(path, "tor refuses its timestamp; see: flashflow bwfile check")),
        }
    };
    let (earlier, earlier_header) = votes(&options.earlier)?;
    let (later, later_header) = votes(&options.later)?;
    let difference = Difference::between(&earlier.relays, &later.relays);
    let Difference { added, removed, changed, same } = &difference;
    let added = added.iter().map(|(relay, bw)| (relay, None, Some(*bw)));
    let removed = removed.iter().map(|(relay, bw)| (relay, Some(*bw), None));
    let both = changed.iter().map(|(relay, (before, now))| (relay, Some(*before), Some(*now)));
    let counts = (added.len(), removed.len(), both.len());
    let ratio = |(before, now): (u32, u32)| f64::from(now) / f64::from(before.max(1));
    let mut all: Vec<(&RsaId, Option<u32>, Option<u32>)> =
        added.chain(removed).chain(both).collect();
    // The largest change comes first.
    let weight = |(_, before, now): &(&RsaId, Option<u32>, Option<u32>)| {
        before.unwrap_or(0).abs_diff(now.unwrap_or(0))
    };
    all.sort_by_key(|change| (std::cmp::Reverse(weight(change)), *change.0));
    for (relay, before, now) in &all {
        let kb = |bw: &Option<u32>| bw.map_or_else(|| "none".to_owned(), |bw| format!("{bw} KB/s"));
        let ratio = before.zip(*now).map(ratio);
        let times = ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2} times)"));
        output.result(format!("{relay}: {} to {}{times}", kb(before), kb(now)), || {
            DiffLine::Relay {
                fingerprint: relay.to_string(),
                before_kb_s: *before,
                now_kb_s: *now,
                ratio,
            }
        });
    }
    show_header_differences(&earlier_header, &later_header, output);
    let totals = (total(&earlier.relays), total(&later.relays));
    let in_words = format!(
        "{} added, {} removed, {} changed, {same} the same; {} to {} KB/s in all",
        report::plural(counts.0 as u64, "relay"),
        counts.1,
        counts.2,
        totals.0,
        totals.1
    );
    output.result(in_words, || DiffLine::Summary {
        added: counts.0,
        removed: counts.1,
        changed: counts.2,
        same: *same,
        total_before_kb_s: totals.0,
        total_now_kb_s: totals.1,
    });
    Ok(if difference.is_empty() { Exit::Done } else { Exit::Failed })
}

/// The report of the file at its own time, without the annotations of archives.
fn as_when_made(bytes: &[u8]) -> Report {
    let made = BandwidthFile::parse(bytes).map_or(0, |parsed| parsed.file.timestamp);
    check_as_tor(without_annotations(bytes), made)
}

fn total(relays: &BTreeMap<RsaId, u32>) -> u64 {
    relays.values().map(|bw| u64::from(*bw)).sum()
}

fn bad(path: &Path, problem: &str) -> Error {
    Error::Config { path: path.to_owned(), problem: problem.to_owned() }
}
