//! `flashflow bwfile`: looks at bandwidth files.

mod explain;

use crate::error::Error;
use clap::{Args, Subcommand};
use link::unix_time_s;
use netdoc::bwfile::{
    Advice, BandwidthFile, Beside, Difference, FileVerdict, LineVerdict, Report, advise,
};
use netdoc::consensus::Consensus;
use netdoc::{Fingerprint, check_as_tor, descriptor};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};

/// Look at bandwidth files: what a directory authority makes of them, and what has changed.
#[derive(Debug, Args)]
pub(crate) struct BwfileOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(CheckOptions),
    Show(ShowOptions),
    Diff(DiffOptions),
    Explain(explain::ExplainOptions),
}

impl BwfileOptions {
    pub(crate) const fn wants_json(&self) -> bool {
        match &self.action {
            Action::Check(CheckOptions { json, .. })
            | Action::Show(ShowOptions { json, .. })
            | Action::Diff(DiffOptions { json, .. }) => *json,
            Action::Explain(options) => options.json,
        }
    }
}

/// Say what tor's directory authority would do with a file, and what is wrong with it although tor is silent.
///
/// The decisions are those of tor 0.4.9, quirks included. Tor does not look at the 60 % rule, at relays
/// that are missing, or at a relay with more than 5 % of all bandwidth: this command does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile check /var/lib/flashflow/bandwidth/latest.v3bw
  flashflow bwfile check latest.v3bw --consensus cached-consensus --descriptors cached-descriptors --strict

Exit status: 0 tor votes by the file; 1 it refuses the file or takes no relay of it, or the file cannot be read, and with
--strict also if anything is wrong; 2 wrong arguments.")]
struct CheckOptions {
    /// The bandwidth file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A consensus of that time: which relays should have a line.
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Server descriptors: no weight may exceed what a relay's operator allows.
    #[arg(long, value_name = "FILE")]
    descriptors: Option<PathBuf>,
    /// Judge it as at this time, in Unix seconds; now, without it.
    #[arg(long, value_name = "SECONDS")]
    at: Option<u64>,
    /// Fail if anything is wrong.
    #[arg(long)]
    strict: bool,
    /// Print what is found as JSON, a value a line; the last is the summary.
    #[arg(long)]
    json: bool,
}

/// Show the relays of a file as tor would vote on them, the fastest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile show latest.v3bw
  flashflow bwfile show latest.v3bw --relay 8A18112151D6C0361C098DF1A9E7A8507A3F1475

Exit status: 0 done; 1 the file cannot be read, or the relay is not in it; 2 wrong arguments.")]
struct ShowOptions {
    /// The bandwidth file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// This relay only, with all that its line says.
    #[arg(long, value_name = "FINGERPRINT")]
    relay: Option<Fingerprint>,
    /// Print relays as JSON, one a line; then a summary.
    #[arg(long)]
    json: bool,
}

/// Show how the votes by two files would differ.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow bwfile diff 20261121-120000.v3bw latest.v3bw

Exit status: 0 no difference; 1 they differ, or a file cannot be read; 2 wrong arguments.")]
struct DiffOptions {
    /// The earlier file.
    #[arg(value_name = "EARLIER")]
    earlier: PathBuf,
    /// The later file.
    #[arg(value_name = "LATER")]
    later: PathBuf,
    /// Print relays as JSON, one a line; then a summary.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &BwfileOptions, output: &Output) -> Result<Exit, Error> {
    match &options.action {
        Action::Check(options) => check(options, output),
        Action::Show(options) => show(options, output),
        Action::Diff(options) => diff(options, output),
        Action::Explain(options) => explain::run(options, output),
    }
}

fn check(options: &CheckOptions, output: &Output) -> Result<Exit, Error> {
    let bytes = read(&options.file)?;
    let now = options.at.unwrap_or_else(unix_time_s);
    let report = check_as_tor(&bytes, now);
    let consensus = options.consensus.as_deref().map(consensus).transpose()?;
    let limits = options.descriptors.as_deref().map(limits).transpose()?;
    let beside = Beside { consensus: consensus.as_ref(), limits_bytes_s: limits.as_ref() };
    let verdict = match report.verdict {
        FileVerdict::Read => match report.breaks_vote().next() {
            None => "tor reads it".to_owned(),
            Some(relay) => format!(
                "tor reads it, and then makes no vote at all if it knows {relay}: from 2147483648 KB/s on a bandwidth gets a \
                 sign, and the vote cannot be read"
            ),
        },
        FileVerdict::Empty => "tor refuses it: it is empty".to_owned(),
        FileVerdict::BadTimestamp => {
            "tor refuses it: the first line is not a Unix time in seconds alone".to_owned()
        }
        FileVerdict::Stale { age_s } => {
            format!("tor refuses it: it is {} h old, and 72 h is the most", age_s / 3600)
        }
    };
    let mut warnings = 0;
    for (number, verdict) in &report.lines {
        let LineVerdict::Skipped { reason, warns } = verdict else { continue };
        warnings += usize::from(*warns);
        let says = if *warns { ", and warns" } else { "" };
        output.result(
            format!("line {number}: tor leaves it out{says}: {reason}"),
            || json!({"type": "skipped", "line": number, "reason": reason, "tor_warns": warns}),
        );
    }
    let advice = advise(&bytes, &report, now, beside);
    for it in &advice {
        let Advice { line, what } = it;
        output.result(
            format!("wrong, and tor is silent: {it}"),
            || json!({"type": "advice", "line": line, "what": what}),
        );
    }
    let is_vote = report.breaks_vote().next().is_none();
    let relays = report.relays.len();
    let headers = if report.headers.too_long { 0 } else { report.headers.lines.len() };
    let in_words = format!(
        "{verdict}; it votes on {relays} relays, with {headers} lines of header; {warnings} warnings in its log, {} \
         more things are wrong",
        advice.len()
    );
    output.result(in_words, || {
        json!({
            "type": "summary", "accepted": report.verdict == FileVerdict::Read && is_vote, "verdict": verdict,
            "relays": relays, "header_lines_in_vote": headers, "tor_warnings": warnings,
            "skipped": report.skipped().count(), "advice": advice.len(),
        })
    });
    let votes = report.verdict == FileVerdict::Read && relays > 0 && is_vote;
    let is_fine = advice.is_empty() && report.is_clean();
    Ok(if votes && (is_fine || !options.strict) { Exit::Done } else { Exit::Failed })
}

fn show(options: &ShowOptions, output: &Output) -> Result<Exit, Error> {
    let bytes = read(&options.file)?;
    let report = as_when_made(&bytes);
    let parsed =
        BandwidthFile::parse(&bytes).map_err(|error| bad(&options.file, &error.to_string()))?;
    let lines: BTreeMap<_, _> = parsed.file.relays.iter().map(|it| (it.node_id, it)).collect();
    if let Some(relay) = options.relay {
        let Some(line) = lines.get(&relay) else {
            return Err(bad(&options.file, &format!("it has no line for {relay}")));
        };
        let voted = report.relays.get(&relay);
        let extra: BTreeMap<&str, &str> =
            line.extra.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let pairs: String = extra.iter().map(|(key, value)| format!("\n  {key}={value}")).collect();
        let weight = match voted {
            Some(bw) => format!("{bw} KB/s"),
            None => format!("no vote (bw={})", line.bw_kb_s),
        };
        let name = line.nick.map_or_else(String::new, |nick| format!(" ({nick})"));
        output.result(format!("{relay}{name}: {weight}{pairs}"), || {
            json!({
                "type": "relay", "fingerprint": relay.to_string(), "nickname": line.nick.map(|it| it.to_string()),
                "voted_kb_s": voted, "bw_kb_s": line.bw_kb_s, "measured_unix_s": line.time,
                "unmeasured": line.unmeasured, "under_min_report": line.under_min_report, "extra": extra,
            })
        });
        return Ok(Exit::Done);
    }
    let mut relays: Vec<(&Fingerprint, &u32)> = report.relays.iter().collect();
    relays.sort_by_key(|(relay, bw)| (std::cmp::Reverse(**bw), **relay));
    for (relay, bw) in &relays {
        let nick = lines.get(relay).and_then(|line| line.nick).map(|nick| nick.to_string());
        output.result(format!("{bw:>10} KB/s  {relay}  {}", nick.as_deref().unwrap_or("")), || {
            json!({"type": "relay", "fingerprint": relay.to_string(), "nickname": nick, "voted_kb_s": bw})
        });
    }
    let (total, file) = (total(&report.relays), &parsed.file);
    let (software, made) = (file.header.software.as_deref().unwrap_or("torflow"), file.timestamp);
    let without = file.relays.len().saturating_sub(relays.len());
    let in_words = format!(
        "{} relays with {total} KB/s in all, and {without} without a vote; by {software}, newest result {made}",
        relays.len()
    );
    output.result(in_words, || {
        json!({
            "type": "summary", "relays": relays.len(), "without_vote": without, "total_kb_s": total,
            "software": software, "version": file.header.version, "timestamp_unix_s": made,
        })
    });
    Ok(Exit::Done)
}

fn diff(options: &DiffOptions, output: &Output) -> Result<Exit, Error> {
    let [earlier, later] =
        [&options.earlier, &options.later].map(|path| read(path).map(|bytes| as_when_made(&bytes)));
    let (earlier, later) = (earlier?, later?);
    for (path, report) in [(&options.earlier, &earlier), (&options.later, &later)] {
        if report.verdict != FileVerdict::Read {
            return Err(bad(path, "no bandwidth file; see: flashflow bwfile check"));
        }
    }
    let difference = Difference::between(&earlier.relays, &later.relays);
    let Difference { added, removed, changed, same } = &difference;
    let added = added.iter().map(|(relay, bw)| (relay, None, Some(*bw)));
    let removed = removed.iter().map(|(relay, bw)| (relay, Some(*bw), None));
    let both = changed.iter().map(|(relay, (before, now))| (relay, Some(*before), Some(*now)));
    let counts = (added.len(), removed.len(), both.len());
    let ratio = |(before, now): (u32, u32)| f64::from(now) / f64::from(before.max(1));
    let mut all: Vec<(&Fingerprint, Option<u32>, Option<u32>)> =
        added.chain(removed).chain(both).collect();
    // What moves most traffic comes first.
    let weight = |it: &(&Fingerprint, Option<u32>, Option<u32>)| {
        it.1.unwrap_or(0).abs_diff(it.2.unwrap_or(0))
    };
    all.sort_by_key(|it| (std::cmp::Reverse(weight(it)), *it.0));
    for (relay, before, now) in &all {
        let kb = |bw: &Option<u32>| bw.map_or_else(|| "none".to_owned(), |bw| format!("{bw} KB/s"));
        let ratio = before.zip(*now).map(ratio);
        let times = ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2} times)"));
        output.result(format!("{relay}: {} to {}{times}", kb(before), kb(now)), || {
            json!({
                "type": "relay", "fingerprint": relay.to_string(), "before_kb_s": before, "now_kb_s": now,
                "ratio": ratio,
            })
        });
    }
    let totals = (total(&earlier.relays), total(&later.relays));
    let in_words = format!(
        "{} relays added, {} removed, {} changed, {same} the same; {} to {} KB/s in all",
        counts.0, counts.1, counts.2, totals.0, totals.1
    );
    output.result(in_words, || {
        json!({
            "type": "summary", "added": counts.0, "removed": counts.1, "changed": counts.2, "same": same,
            "total_before_kb_s": totals.0, "total_now_kb_s": totals.1,
        })
    });
    Ok(if difference.is_empty() { Exit::Done } else { Exit::Failed })
}

/// What tor would have said when the file was new: its age is no matter here.
fn as_when_made(bytes: &[u8]) -> Report {
    check_as_tor(bytes, BandwidthFile::parse(bytes).map_or(0, |parsed| parsed.file.timestamp))
}

fn total(relays: &BTreeMap<Fingerprint, u32>) -> u64 {
    relays.values().map(|bw| u64::from(*bw)).sum()
}

fn consensus(path: &Path) -> Result<Consensus, Error> {
    let what = format!("the consensus in {}", path.display());
    Consensus::parse(&read(path)?).map_err(|source| Error::Consensus { what, source })
}

fn limits(path: &Path) -> Result<BTreeMap<Fingerprint, u64>, Error> {
    let text = read(path)?;
    // Those that do not parse set no limit that we know.
    let (descriptors, _bad) = descriptor::parse_all(&text);
    Ok(descriptors.iter().map(|it| (it.fingerprint, it.bandwidth_avg_bytes_s)).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File { what: "read", path: path.to_owned(), source })
}

fn bad(path: &Path, problem: &str) -> Error {
    Error::Config { path: path.to_owned(), problem: problem.to_owned() }
}
