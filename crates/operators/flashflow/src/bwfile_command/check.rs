//! `flashflow bwfile check`: what a directory authority would do with a bandwidth file.

use clap::Args;
use cli::Error;
use documents::{self, read_raw};
use link::unix_time_s;
use netdoc::bwfile::{
    Advice, BandwidthFile, Context, FileVerdict, LineVerdict, Report, advise, first_line,
};
use netdoc::input::{plain, without_annotations};
use netdoc::{RsaId, check_as_tor};
use report::plural;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal::times::{readable, time};
use terminal::{Exit, Output, note};

/// Check how a directory authority would use a bandwidth file, and report problems that tor does not.
///
/// The decisions and warnings are those of tor 0.4.9. In addition, the command checks the 60 % rule, missing relays, and relays with
/// more than 5 % of all bandwidth. If tor refuses the file, the rest is checked as if tor had accepted it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile check /var/lib/flashflow/bandwidth/latest.v3bw
  flashflow bwfile check latest.v3bw --strict \\
      --consensus cached-consensus --descriptors cached-descriptors
  flashflow bwfile check old.v3bw --at 2026-11-26T15:00:00

FILE may be `-`, which is standard input. Consensus and descriptors may be compressed with gzip
or zlib. The bandwidth file must not be compressed, because tor does not decompress it.

Exit status: 0 tor votes with the file; 1 tor refuses the file or all of its relays, or the file
cannot be read, or, with --strict, there is any problem; 2 wrong arguments.")]
pub(super) struct CheckOptions {
    /// The bandwidth file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Consensus of that time, which lists the relays that should have a line, and the authorities.
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Server descriptors: no weight may exceed the rate limit of its relay. The newest descriptor of a relay counts.
    #[arg(long, value_name = "FILE")]
    descriptors: Option<PathBuf>,
    /// Check the file as of this time: Unix seconds, a date, or a date and time in UTC. By default the current time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// Fail if there is any problem.
    #[arg(long)]
    strict: bool,
}

/// A refused file as tor would read it if it were new, uncompressed and without annotations.
struct Remedied {
    bytes: Vec<u8>,
    /// The time of the check.
    at_unix_s: u64,
    /// Annotations before its first line.
    skipped_lines: usize,
    report: Report,
}

impl Remedied {
    fn new(bytes: &[u8], now: u64) -> Option<Self> {
        let text = plain(bytes.to_vec()).ok()?;
        let rest = without_annotations(&text).to_vec();
        let annotations = &text[..text.len() - rest.len()];
        let skipped_lines = annotations.iter().filter(|byte| **byte == b'\n').count();
        let made = BandwidthFile::parse(&rest).ok()?.file.timestamp;
        let fresh = check_as_tor(&rest, now);
        let (at_unix_s, report) = match fresh.verdict {
            FileVerdict::Read => (now, fresh),
            _ => (made, check_as_tor(&rest, made)),
        };
        let is_read = report.verdict == FileVerdict::Read;
        is_read.then_some(Self { bytes: rest, at_unix_s, skipped_lines, report })
    }
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// Tor refuses the file.
    Refused {
        /// The line.
        line: usize,
        /// Tor's warning.
        tor_warning: &'a str,
    },
    /// A line that tor leaves out.
    Skipped {
        /// The line.
        line: usize,
        /// The reason.
        reason: String,
        /// Whether tor logs a warning.
        tor_warns: bool,
        /// Tor's warning.
        tor_warning: Option<&'a str>,
    },
    /// A directory authority, whose weight no consensus counts.
    Authority {
        /// The authority.
        fingerprint: String,
    },
    /// A problem that tor does not report.
    Advice {
        /// The line; `null` for the whole file.
        line: Option<usize>,
        /// The problem.
        what: String,
    },
    /// The whole file.
    Summary {
        /// Whether tor votes with it.
        accepted: bool,
        /// The verdict in words.
        verdict: &'a str,
        /// The number of relays that it votes on.
        relays: usize,
        /// The number of authorities among its relays.
        authorities: usize,
        /// The number of lines of its header in the vote.
        header_lines_in_vote: usize,
        /// The number of tor's warnings.
        tor_warnings: usize,
        /// The number of relays if tor accepted the file.
        relays_if_accepted: usize,
        /// The number of lines that tor leaves out.
        skipped: usize,
        /// The number of problems that tor does not report.
        advice: usize,
        /// Whether everything after the refusal could be checked.
        rest_checked: bool,
        /// The number of descriptors; `null` without `--descriptors`.
        descriptors: Option<usize>,
        /// The number of descriptors that cannot be read.
        descriptors_unreadable: Option<usize>,
    },
}

pub(super) fn run(options: &CheckOptions, output: &Output) -> Result<Exit, Error> {
    let bytes = read_raw(&options.file, "read")?;
    let now = options.at.unwrap_or_else(unix_time_s);
    let report = check_as_tor(&bytes, now);
    let is_read = report.verdict == FileVerdict::Read;
    let remedied = if is_read { None } else { Remedied::new(&bytes, now) };
    let consensus = match &options.consensus {
        Some(path) => Some(documents::consensus(path, now)?),
        None => None,
    };
    let limits = match &options.descriptors {
        Some(path) => Some(Limits::read(path)?),
        None => None,
    };
    let context = Context {
        consensus: consensus.as_ref(),
        limits_bytes_s: limits.as_ref().map(|limit| &limit.by_relay),
    };
    let verdict = verdict(&report, &bytes);
    if !is_read {
        for warning in &report.warnings {
            let (line, text) = (warning.line, &warning.text);
            output.result(format!("tor warns: {}", shortened(text)), || Line::Refused {
                line,
                tor_warning: text,
            });
        }
    }
    if let Some(remedied) = &remedied {
        output.text(format!(
            "the rest, as if tor had accepted the file (as of {}; --at sets another time):",
            readable(remedied.at_unix_s)
        ));
    }
    let (rest, rest_bytes, at) = match &remedied {
        Some(remedied) => (&remedied.report, &remedied.bytes[..], remedied.at_unix_s),
        None => (&report, &bytes[..], now),
    };
    let number_from = remedied.as_ref().map_or(0, |remedied| remedied.skipped_lines);
    print_lines(rest, number_from, output);
    let authorities =
        consensus.as_ref().map(|consensus| rest.authorities(consensus)).unwrap_or_default();
    for relay in &authorities {
        output.result(
            format!(
                "relay {relay} is a directory authority: tor votes MeasuredButAuthority= on it, which no consensus counts"
            ),
            || Line::Authority { fingerprint: relay.to_string() },
        );
    }
    if let Some(limits) = &limits
        && !rest.relays.keys().any(|relay| limits.by_relay.contains_key(relay))
    {
        note("no relay of the bandwidth file has a descriptor: no limit is known");
    }
    let advice = advise(rest_bytes, rest, at, context);
    for problem in &advice {
        let Advice { line, what } = problem;
        let line = line.map(|line| line + number_from);
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        output.result(format!("problem without a warning by tor: {place}{what}"), || {
            Line::Advice { line, what: what.to_string() }
        });
    }

    let is_vote = is_read && report.breaks_vote().next().is_none();
    let counted = rest.relays.len() - authorities.len();
    let relays = if is_read { counted } else { 0 };
    let headers = if report.headers.too_long { 0 } else { report.headers.lines.len() };
    let warnings = report.warnings.len();
    let wrong = match advice.len() {
        1 => "1 other thing is".to_owned(),
        count => format!("{count} other things are"),
    };
    let mut in_words = format!(
        "{verdict}; it votes on {}, with {} of header; {} in its log",
        plural(relays as u64, "relay"),
        plural(headers as u64, "line"),
        plural(warnings as u64, "warning"),
    );
    match &remedied {
        Some(remedied) => {
            in_words += &format!(
                ". If tor accepted it: {}, {}, and {wrong} wrong",
                plural(counted as u64, "relay"),
                plural(remedied.report.warnings.len() as u64, "warning")
            );
        }
        None if is_read => in_words += &format!(", and {wrong} wrong"),
        None => in_words += "; the rest of it cannot be checked",
    }
    output.result(in_words, || Line::Summary {
        accepted: is_vote,
        verdict: &verdict,
        relays,
        authorities: authorities.len(),
        header_lines_in_vote: headers,
        tor_warnings: warnings,
        relays_if_accepted: counted,
        skipped: rest.skipped().count(),
        advice: advice.len(),
        rest_checked: is_read || remedied.is_some(),
        descriptors: limits.as_ref().map(|limits| limits.by_relay.len()),
        descriptors_unreadable: limits.as_ref().map(|limits| limits.unreadable),
    });
    let is_fault = |(_, verdict): &(usize, LineVerdict)| verdict.is_fault();
    let is_fine = advice.is_empty() && report.is_clean() && !report.lines.iter().any(is_fault);
    let votes = is_vote && relays > 0;
    Ok(if votes && (is_fine || !options.strict) { Exit::Done } else { Exit::Failed })
}

/// Prints the lines that tor skips, with the reason of each.
fn print_lines(report: &Report, number_from: usize, output: &Output) {
    let warnings: BTreeMap<usize, &str> =
        report.warnings.iter().map(|warning| (warning.line, warning.text.as_str())).collect();
    for (number, verdict) in &report.lines {
        let LineVerdict::Skipped { reason, warns } = verdict else { continue };
        let warning = warnings.get(number);
        let line = number + number_from;
        let says = match warning {
            Some(text) => format!("; tor warns: {}", shortened(text)),
            None => String::new(),
        };
        output.result(format!("line {line}: tor leaves it out: {reason}{says}"), || {
            Line::Skipped {
                line,
                reason: reason.to_string(),
                tor_warns: *warns,
                tor_warning: warning.copied(),
            }
        });
    }
}

fn verdict(report: &Report, bytes: &[u8]) -> String {
    match report.verdict {
        FileVerdict::Read => match report.breaks_vote().next() {
            None => "tor reads it".to_owned(),
            Some(relay) => format!(
                "tor reads it, and then makes no vote at all if it knows {relay}: from 2147483648 KB/s on a bandwidth gets a \
                 sign, and the vote cannot be read"
            ),
        },
        FileVerdict::Empty => "tor refuses it: it is empty".to_owned(),
        FileVerdict::BadTimestamp => {
            let why = first_line(bytes);
            let why = why.map_or_else(String::new, |why| format!(": {}", shortened(&why)));
            format!("tor refuses it: the first line is not a Unix time in seconds alone{why}")
        }
        FileVerdict::Stale { age_s } => {
            format!("tor refuses it: it is {} h old, and 72 h is the most", age_s / 3600)
        }
    }
}

/// A text shortened for a terminal, because a line of an invalid file may have any length.
fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Rate limits of relays, in bytes per second.
struct Limits {
    by_relay: BTreeMap<RsaId, u64>,
    /// Descriptors that cannot be read.
    unreadable: usize,
}

impl Limits {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = documents::read(path, "read the descriptors")?;
        let found = documents::newest(path, &text)?;
        let limits = found
            .descriptors
            .iter()
            .map(|descriptor| (descriptor.fingerprint, descriptor.bandwidth_avg_bytes_s));
        Ok(Self { by_relay: limits.collect(), unreadable: found.bad.len() })
    }
}
