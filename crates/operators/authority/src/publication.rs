//! Bandwidth files: their lines, their gate, and the folder in which tor reads them.

use super::config::{Config, Gate};
use super::journal::Journal;
use super::network::Network;
use cli::Error;
use coordinator::journal::{Entry, ListedRelay, PublishedFile};
use coordinator::period::{PublishedRelay, PublishedResult};
use documents::gate::{self, CheckName, Comparison, OUTCOME, Outcome};
use documents::{Documents, read_places};
use files::Access;
use link::unix_time_s;
use netdoc::bwfile::{
    self, BandwidthFile, Eligibility, LATEST, SCANNER_COUNTRY, Settings, Written,
};
use onion::identity::RsaId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The last days of the header (bandwidth-file-spec.txt, section 2.1).
const RECENT_S: u64 = 5 * 24 * 3600;

/// Makes the folder of bandwidth files, and of the stop file.
pub(super) fn make_folder(out: &Path) -> Result<(), Error> {
    let failed = |source| Error::File { what: "make the folder", path: out.to_owned(), source };
    fs::create_dir_all(out).map_err(failed)
}

/// Writes the bandwidth file, unless it would be empty. `generator_started` is the start of this process.
///
/// Tor reads it only if it passes the gate, if there is one.
pub(super) fn publish(
    config: &Config,
    journal: &Journal,
    network: &Network,
    relays: &[PublishedRelay],
    listed: &[ListedRelay],
    generator_started: u64,
) -> Result<Option<Written>, Error> {
    let now = unix_time_s();
    let estimates = relays.iter().map(|relay| line(&network.documents, relay));
    let mut estimates = estimates.collect::<Result<Vec<_>, _>>()?;
    add_causes(&mut estimates, &journal.lower_bound_causes()?);
    if config.diagnostics {
        let lines = unmeasured(listed, &estimates)?;
        estimates.extend(lines);
    }
    let counts = Eligibility::count(&network.documents.consensus, &estimates);
    let settings = Settings::new(env!("CARGO_PKG_VERSION"), generator_started, now);
    let mut file = match BandwidthFile::generate(&estimates, counts, &settings) {
        Ok(file) => file,
        Err(error @ bwfile::GenerateError::NoResults { .. }) => {
            tracing::warn!("no bandwidth file: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    file.header.other.extend(config.header.iter().cloned());
    let (attempts, failures) = journal.attempts(now.saturating_sub(RECENT_S))?;
    let counts = [("attempt", attempts), ("failure", failures)];
    let line = |(what, count): (&str, u64)| {
        (format!("recent_measurement_{what}_count"), count.to_string())
    };
    file.header.other.extend(counts.map(line));
    let out = &config.out;
    make_folder(out)?;
    let passes = match &config.gate {
        Some(gate) => passes(config, gate, journal, network, &file, now)?,
        None => true,
    };
    let written = file.write_if(out, config.node_ids, passes)?;
    tidy(config)?;
    if network.confirms_clock {
        // A clock that was ahead has written them.
        bwfile::remove_later(out, &written.path)?;
    }
    let voted = || file.relays.iter().filter(|line| line.vote);
    let country = config.header.iter().find(|(key, _)| key == SCANNER_COUNTRY);
    journal.note(Entry::Published(PublishedFile {
        created_unix_s: now,
        path: written.path.display().to_string(),
        lines: file.relays.len(),
        voted: voted().count(),
        capacity_kb_s: voted().map(|line| line.bw_kb_s).sum(),
        scanner_country: country.map(|(_, value)| value.clone()),
    }));
    Ok(Some(written))
}

/// Whether a file may replace the one that tor reads. Writes the figures next to it, and logs the reasons if they are new.
fn passes(
    config: &Config,
    gate: &Gate,
    journal: &Journal,
    network: &Network,
    file: &BandwidthFile,
    now_unix_s: u64,
) -> Result<bool, Error> {
    // Without a readable file there is nothing to compare with, and tor reads none.
    let previous = fs::read(config.out.join(LATEST)).ok();
    let round_trips_ms = journal.mean_round_trips_ms()?;
    let places = read_places(&gate.places);
    for unread in places.iter().filter_map(|place| place.as_ref().err()) {
        tracing::warn!("gate: not compared with this place: {unread}");
    }
    let with = Comparison {
        previous: previous.as_deref(),
        consensus: Some(&network.documents.consensus),
        others: network.others.as_ref(),
        round_trips_ms: Some(&round_trips_ms),
        countries: gate.countries.as_ref(),
        places: &places,
    };
    let text = file.to_text(config.node_ids)?;
    let outcome = gate::judge(text.as_bytes(), now_unix_s, with, &gate.limits);
    let path = config.out.join(OUTCOME);
    log_change(&failed_before(&path), &outcome);
    // Cannot fail: all keys are strings.
    let json = serde_json::to_vec(&outcome).unwrap_or_default();
    let failed =
        |source| Error::File { what: "write the result of the gate", path: path.clone(), source };
    files::replace_entry(&path, &json, Access::Everyone).map_err(failed)?;
    Ok(outcome.passed)
}

/// A check that has failed, and the place that it compared with, if any.
type Failed = (CheckName, Option<String>);

fn failed(outcome: &Outcome) -> Vec<Failed> {
    outcome.failed().map(|check| (check.check, check.place.clone())).collect()
}

/// The checks that the last file failed.
fn failed_before(path: &Path) -> Vec<Failed> {
    let read = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Outcome>(&text).ok());
    read.as_ref().map_or_else(Vec::new, failed)
}

/// Logs the reasons why a file fails, once for each set of checks.
fn log_change(before: &[Failed], outcome: &Outcome) {
    let failed = failed(outcome);
    if failed == before {
        return;
    }
    if failed.is_empty() {
        tracing::info!("the bandwidth file passes the gate again, and {LATEST} is up to date");
        return;
    }
    for check in outcome.failed() {
        let figure = check.figure.map_or_else(String::new, |figure| check.unit.show(figure));
        let (name, limit) = (check.check.word(), check.unit.show(check.limit));
        tracing::warn!("gate: {name} is {figure}, and its limit {limit}: {}", check.what);
    }
    tracing::warn!(
        "the bandwidth file does not pass the gate: {LATEST} stays until a file passes, or you accept one (manual, bandwidth files)"
    );
}

/// Adds to lines with lower bounds why they are.
fn add_causes(estimates: &mut [bwfile::Estimate], causes: &BTreeMap<RsaId, String>) {
    for estimate in estimates {
        let is_bound =
            estimate.extra.iter().any(|(key, value)| key == documents::CONCLUSIVE && value == "0");
        let cause = causes.get(&estimate.fingerprint);
        if let Some(cause) = cause.filter(|_| is_bound) {
            estimate.extra.push((documents::CAUSE.to_owned(), cause.clone()));
        }
    }
}

/// A relay's line. Even a lower bound is more accurate than the relay's own claim.
///
/// # Errors
/// The relay's nickname is invalid.
pub fn line(documents: &Documents, relay: &PublishedRelay) -> Result<bwfile::Estimate, Error> {
    let nickname = documents::nickname(&relay.nickname)?;
    match &relay.result {
        PublishedResult::Estimate { estimate, share } => {
            let mut line = documents.entry_of(&relay.ids, nickname, estimate);
            if *share < estimate.capacity
                && let bwfile::Outcome::Measured { capacity_bytes_s, .. } = &mut line.outcome
            {
                // What its host can do is known, and no claim changes it.
                *capacity_bytes_s = share.as_byte_per_s();
            }
            Ok(line)
        }
        PublishedResult::Failed { reason, mode, tried_unix_s } => {
            let tried = Some(*tried_unix_s);
            Ok(documents::failed(&relay.ids, nickname, reason.clone(), *mode, tried))
        }
    }
}

/// Lines of the relays without an estimate, with the reason. Authorities do not use them for votes.
fn unmeasured(
    listed: &[ListedRelay],
    estimates: &[bwfile::Estimate],
) -> Result<Vec<bwfile::Estimate>, Error> {
    let known: BTreeSet<_> = estimates.iter().map(|estimate| estimate.fingerprint).collect();
    let line = |relay: &ListedRelay| {
        let reason = relay.left_out.clone().unwrap_or_else(|| "not measured yet".to_owned());
        let nickname = documents::nickname(&relay.nickname)?;
        Ok(documents::failed(&relay.ids, nickname, reason, None, None))
    };
    let mut lines = listed.iter().map(line).collect::<Result<Vec<_>, Error>>()?;
    lines.retain(|line| !known.contains(&line.fingerprint));
    Ok(lines)
}

/// Keeps the newest files, as many as are written in a day, and one of each earlier day.
fn tidy(config: &Config) -> Result<(), Error> {
    const DAY_S: u64 = 24 * 3600;
    let of_a_day = DAY_S.div_ceil(config.refresh.as_secs().max(1));
    // Intervals below a minute are for tests.
    let of_a_day = usize::try_from(of_a_day).unwrap_or(usize::MAX).clamp(24, 24 * 60);
    bwfile::remove_superseded(&config.out, of_a_day)?;
    bwfile::remove_old(&config.out, config.keep_files.saturating_add(of_a_day))?;
    Ok(())
}

#[cfg(test)]
mod tests;
