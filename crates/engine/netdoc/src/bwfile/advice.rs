//! Finds problems of a bandwidth file that tor does not report.
//!
//! Tor leaves to the generator most of what the specification requires (bandwidth-file-spec.txt,
//! sections 2.2 and 2.3), and silently accepts files that harm the network.

use super::as_tor::{FileVerdict, LineVerdict, Report};
use super::{BandwidthFile, HeaderKey, KNOWN_HEADERS};
use crate::consensus::Consensus;
use identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The minimum share of relays on which authorities should vote: `MIN_REPORT` of TorFlow and sbws.
const MIN_PERCENT: u64 = 60;

/// The maximum share of all bandwidth for one relay: TorFlow's and sbws' `NODE_CAP`.
const NODE_CAP_PERCENT: u64 = 5;

/// With fewer relays the limit is meaningless: an equal share would exceed it.
const NODE_CAP_RELAYS: usize = 40;

/// Older versions of tor truncated longer lines, and sbws avoids them.
const LINE_MAX: usize = 1022;

/// Half of tor's limit: a running generator would have written a newer file.
const OLD_S: u64 = 36 * 60 * 60;

/// A problem.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advice {
    /// The line, from 1; `None` if it concerns the whole file.
    pub line: Option<usize>,
    /// The description.
    pub what: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Data to compare a file with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// A consensus of that time, which lists the relays that the file should have.
    pub consensus: Option<&'a Consensus>,
    /// `bandwidth-avg` of descriptors, in bytes/s: no weight may exceed it.
    pub limits_bytes_s: Option<&'a BTreeMap<RsaId, u64>>,
}

/// Problems of a file in addition to tor's warnings. `report` is the result of
/// [`check_as_tor`](super::check_as_tor) for the same bytes and time.
#[must_use]
pub fn advise(bytes: &[u8], report: &Report, now: u64, context: Context<'_>) -> Vec<Advice> {
    let mut advice = Vec::new();
    let mut add = |line, what: String| advice.push(Advice { line, what });
    let Ok(parsed) = BandwidthFile::parse(bytes) else { return advice };
    if report.verdict != FileVerdict::Read {
        return advice;
    }
    // For a line that tor skips, the report has the reason.
    let left_out: BTreeSet<usize> = report
        .lines
        .iter()
        .filter(|(_, verdict)| verdict.is_fault())
        .map(|(number, _)| *number)
        .collect();
    for skipped in parsed.skipped.iter().filter(|skipped| !left_out.contains(&skipped.line)) {
        add(Some(skipped.line), format!("violates the specification: {}", skipped.reason));
    }
    let file = &parsed.file;
    let age_s = now.saturating_sub(file.timestamp);
    if age_s > OLD_S {
        add(Some(1), format!("it is {} h old; tor refuses it after 72 h", age_s / 3600));
    }
    if file.timestamp > now {
        add(Some(1), format!("its timestamp is {} s in the future", file.timestamp - now));
    }
    match file.header.latest_bandwidth {
        Some(latest) if latest != file.timestamp => {
            add(None, "latest_bandwidth is not the timestamp in line 1".to_owned());
        }
        _ => {}
    }
    for (key, value) in file.header.pairs() {
        if let Some(Err(problem)) = HeaderKey::find(key).map(|known| known.check(&value)) {
            add(None, format!("violates the specification: {problem}"));
        }
    }
    if !report.has_terminator {
        add(
            None,
            "no line `=====` ends the header: the first relay that tor takes does".to_owned(),
        );
    }
    if report.headers.too_long {
        let len = report.headers.joined_len;
        add(
            None,
            format!("the header has {len} bytes: over 1024 of them, and votes have none of it"),
        );
    }
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.len() > LINE_MAX {
            add(Some(number), format!("{} bytes, more than {LINE_MAX}", line.len()));
        }
    }
    for (number, verdict) in &report.lines {
        if let LineVerdict::Relay { node_id, bw_kb_s: 0, .. } = verdict {
            add(Some(*number), format!("relay {node_id} has bw=0; the minimum is 1"));
        }
    }
    same_ed25519(file, &mut add);
    // Consensuses ignore measurements of authorities.
    let mut voted = report.relays.clone();
    if let Some(consensus) = context.consensus {
        for authority in report.authorities(consensus) {
            voted.remove(&authority);
        }
    }
    let voted = &voted;
    let total: u64 = voted.values().map(|bw| u64::from(*bw)).sum();
    if voted.len() >= NODE_CAP_RELAYS {
        for (relay, bw) in
            voted.iter().filter(|(_, bw)| u64::from(**bw) * 100 > total * NODE_CAP_PERCENT)
        {
            let percent = u64::from(*bw) * 100 / total.max(1);
            add(
                None,
                format!(
                    "relay {relay} has {percent} % of all bandwidth, over {NODE_CAP_PERCENT} %"
                ),
            );
        }
    }
    if let Some(limits) = context.limits_bytes_s {
        for (relay, bw) in voted {
            let limit =
                limits.get(relay).filter(|limit| u64::from(*bw) * 1000 > (**limit).max(1000));
            if let Some(limit) = limit {
                add(
                    None,
                    format!("relay {relay} has {bw} KB/s, but its operator allows {limit} bytes/s"),
                );
            }
        }
    }
    gate(file, voted, context.consensus, &mut add);
    if let Some(consensus) = context.consensus {
        compare(file, voted, consensus, &mut add);
    }
    advice
}

/// Relays that share an Ed25519 identity. Each relay has one RSA and one Ed25519 identity, and
/// authorities list no two relays with the same (dir-spec.txt, section 3.4.1, `id`). Tor reads
/// `node_id` only.
fn same_ed25519(file: &BandwidthFile, add: &mut impl FnMut(Option<usize>, String)) {
    let mut known: BTreeMap<_, Vec<RsaId>> = BTreeMap::new();
    for line in &file.relays {
        if let Some(id) = line.master_key_ed25519 {
            known.entry(id).or_default().push(line.node_id);
        }
    }
    for relays in known.values().filter(|relays| relays.len() > 1) {
        let names: Vec<String> = relays.iter().take(3).map(ToString::to_string).collect();
        let more = relays.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = names.join(", ");
        add(
            None,
            format!("{} relays have the same master_key_ed25519: {names}{more}", relays.len()),
        );
    }
}

/// The 60 % rule, which tor does not check.
fn gate(
    file: &BandwidthFile,
    voted: &BTreeMap<RsaId, u32>,
    consensus: Option<&Consensus>,
    add: &mut impl FnMut(Option<usize>, String),
) {
    if voted.is_empty() {
        add(None, "tor votes on none of its relays".to_owned());
        return;
    }
    let header = &file.header;
    // A file cannot exempt itself.
    let least = header.minimum_percent_eligible_relays.unwrap_or(MIN_PERCENT).max(MIN_PERCENT);
    let of_header = match (header.number_eligible_relays, header.number_consensus_relays) {
        (Some(eligible), Some(all)) => Some((eligible, all)),
        _ => None,
    };
    let of_consensus = consensus.map(|consensus| {
        // Relays outside the consensus do not count.
        let known = measurable(consensus).filter(|relay| voted.contains_key(relay)).count();
        (known as u64, measurable(consensus).count() as u64)
    });
    let sources = [("by its header", of_header), ("by the consensus", of_consensus)];
    for (source, counts) in sources {
        let Some((some, all)) = counts else { continue };
        if some.saturating_mul(100) < all.saturating_mul(least) {
            add(
                None,
                format!(
                    "{source}, it has {some} of {all} relays, under {least} %, and authorities would vote all the same: \
                     all lines should have vote=0"
                ),
            );
        }
    }
    if of_header.is_none() && header.version.is_some() {
        let keys = KNOWN_HEADERS.iter().filter(|key| key.starts_with("number_"));
        let keys: Vec<&str> = keys.copied().collect();
        add(None, format!("its header does not have {}", keys.join(" and ")));
    }
}

/// Relays of the consensus that are missing from the file, and vice versa.
fn compare(
    file: &BandwidthFile,
    voted: &BTreeMap<RsaId, u32>,
    consensus: &Consensus,
    add: &mut impl FnMut(Option<usize>, String),
) {
    let lines: BTreeMap<RsaId, bool> =
        file.relays.iter().map(|line| (line.node_id, line.vote)).collect();
    let missing: Vec<RsaId> =
        measurable(consensus).filter(|relay| !lines.contains_key(relay)).collect();
    let others = voted.keys().filter(|relay| consensus.by_fingerprint(relay).is_none());
    let others: Vec<RsaId> = others.copied().collect();
    for (relays, of_one, of_some) in [
        (
            missing,
            "relay of the consensus is up and has no line that tor takes",
            "relays of the consensus are up and have no line that tor takes",
        ),
        (
            others,
            "relay has a bandwidth but is not in the consensus",
            "relays have a bandwidth but are not in the consensus",
        ),
    ] {
        match relays[..] {
            [] => {}
            [one] => add(None, format!("1 {of_one}: {one}")),
            [first, ..] => add(None, format!("{} {of_some}, such as {first}", relays.len())),
        }
    }
}

/// Relays that could have been measured.
fn measurable(consensus: &Consensus) -> impl Iterator<Item = RsaId> {
    let up = consensus.routers().iter().filter(|router| router.is_measurable());
    up.map(|router| router.fingerprint)
}
