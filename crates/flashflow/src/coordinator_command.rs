//! `flashflow coordinator`: measures all relays with a team of measurers, and writes bandwidth files.

mod agreed;
mod agreeing;
mod campaign;
mod config;
mod journal;
mod past;
mod relays;
mod scheduled;
mod seed;
mod suspects;
mod team;
mod together;

use config::Schedule;
pub(crate) use config::{Config, Mate, slot_s};
pub(crate) use team::RemoteTeam;

use crate::config::log_to_stderr;
use campaign::{Common, Found};
use clap::Args;
use cli::Error;
use coordinator::{History, MeasurerId, Record};
use documents::{self, Documents};
use journal::Journal;
use link::unix_time_s;
use netdoc::bwfile::{self, BandwidthFile, Eligibility, Settings, Written};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use report::RelayReport;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use store::{Entry, Issue, Seen, Sighting};
use terminal::{Exit, Hangup, Interrupt, Output};

/// Run a coordinator, which measures relays with a team of measurers and writes bandwidth files.
///
/// The measurers are `flashflow measurer` processes on this host or others. Several relays are measured at the same time, as far
/// as the team's capacity allows. Relays that take part are measured as an echo, all others in transit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow coordinator --config coordinator.toml --once
  flashflow coordinator --config coordinator.toml

The sample coordinator.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.
Without --once, all relays are measured once in each period. The coordinator logs to stderr; RUST_LOG=debug logs more.

Exit status: 0 each relay has an estimate; 1 something failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct CoordinatorOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Measure all relays once, and end.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(
    options: &CoordinatorOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    log_to_stderr();
    let started = unix_time_s();
    let config = Config::read(&options.config)?;
    let team = RemoteTeam::new(&config)?;
    let journal = Journal::open(&config)?;
    let hangup = Hangup::install()?;
    tracing::info!("coordinator {} with {} measurers", config.secret.public(), team.len());
    interrupt.wind_up_in_order();
    let common = Common {
        config: &config,
        team: &team,
        journal: &journal,
        output,
        interrupt,
        hangup: &hangup,
    };
    if !options.once && config.schedule == Schedule::Randomised {
        return scheduled::run(common, started);
    }
    loop {
        let begun = unix_time_s();
        let done = period(common, started);
        if interrupt.is_requested() {
            return Ok(interrupted(output));
        }
        if options.once {
            return done;
        }
        if let Err(error) = &done {
            // What is wrong now may be right in an hour.
            output.error(error);
        }
        let passed = Duration::from_secs(unix_time_s().saturating_sub(begun));
        interrupt.wait(config.period.saturating_sub(passed));
    }
}

fn interrupted(output: &Output) -> Exit {
    output.quiet();
    output.step("interrupted");
    output.record(|| json!({"type": "interrupted"}));
    Exit::Interrupted
}

/// Measures each relay, as early as the team can, and writes the bandwidth file.
fn period(common: Common<'_>, generator_started: u64) -> Result<Exit, Error> {
    let Common { config, team, journal, output, interrupt, .. } = common;
    output.doing("asking the measurers, and fetching the consensus");
    reload_if_asked(common);
    let begun = unix_time_s();
    journal::pass(common, begun)?;
    let documents = relays::documents(config, begun)?;
    see(common, &documents)?;
    let history = journal.history(&team.keys())?;
    let expectations = history.expectations(config.history_policy(), unix_time_s());
    let mut relays = relays::relays(&documents, config, &expectations)?;
    let capacities = greet(common)?;
    relays::put_together(&mut relays, &documents, config, team.at_once_max(config));
    output.step(format!("{} relays to be measured", relays.len()));
    let found = campaign::run(common, capacities, relays, begun)?;
    journal.tidy(config, unix_time_s());
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    let written = publish(common, &documents, &history, &found, begun, generator_started)?;
    Ok(tell(&found.records, written.as_ref(), output))
}

/// Asks all measurers, and records what they say.
fn greet(Common { config, team, journal, output, .. }: Common<'_>) -> Result<Vec<Rate>, Error> {
    let at = unix_time_s();
    journal.note(Entry::Team(team.keys()));
    let mut note = |measurer: MeasurerId, answer: Result<Rate, String>| {
        let health = team.health(measurer, answer, at);
        health.map(Entry::Measurer).into_iter().for_each(|it| journal.note(it));
    };
    let capacities = team.greet(output, &mut note)?;
    let at_once_max = team.at_once_max(config);
    if at_once_max < u32::MAX {
        output.step(format!("at most {at_once_max} relays are measured at once"));
    }
    Ok(capacities)
}

/// Records which relays there are.
fn see(Common { config, journal, .. }: Common<'_>, documents: &Documents) -> Result<(), Error> {
    journal.note(Entry::Seen(Seen {
        valid_after_unix_s: documents.consensus.valid_after,
        at_unix_s: unix_time_s(),
        source: documents.what.clone(),
        signers: documents.signers,
        relays: relays::sightings(documents, config)?,
    }));
    Ok(())
}

/// Reads the opt-in list again, if somebody wants that; says whether.
fn reload_if_asked(Common { config, output, hangup, .. }: Common<'_>) -> bool {
    let is_asked = hangup.take();
    if is_asked {
        match config.reload_consent() {
            Ok(()) => output.step("read the opt-in list again"),
            Err(error) => output.error(&error),
        }
    }
    is_asked
}

/// Writes the bandwidth file, if there is anything to be written. `begun_unix_s` is the beginning of the period.
fn publish(
    Common { config, journal, output, .. }: Common<'_>,
    documents: &Documents,
    history: &History,
    Found { relays, records }: &Found,
    begun_unix_s: u64,
    generator_started: u64,
) -> Result<Option<Written>, Error> {
    let (policy, now) = (config.history_policy(), unix_time_s());
    let mut estimates: Vec<bwfile::Estimate> = Vec::new();
    let mut machines: BTreeMap<RsaId, Vec<usize>> = BTreeMap::new();
    for (place, relay) in relays.iter().enumerate() {
        let number = estimates.len();
        let ids = &relay.subject.target().ids;
        let record = records.get(&place);
        let kept = history.kept(&policy, ids.rsa, record, now);
        match (kept, record) {
            (Some(kept), _) => estimates.push(documents.entry_of(ids, relay.nickname, &kept)),
            (None, Some(record)) => estimates.push(documents.entry(record)?),
            (None, None) => continue,
        }
        // A relay that was measured elsewhere, and has moved since, says nothing of the machine where it is now.
        let measured_at = record.filter(|_| kept.is_none()).map(|it| it.relay.address.ip());
        if measured_at.is_none_or(|at| at == relay.address()) {
            machines.entry(relay.machine).or_default().push(number);
        }
    }
    let apart = Duration::from_secs(u64::from(config.params.seconds) / 2);
    let fit = |places: &Vec<usize>| fit_machine(&mut estimates, places, apart, begun_unix_s);
    machines.values().for_each(fit);
    if config.diagnostics {
        estimates.extend(unmeasured(config, documents, &estimates)?);
    }
    let counts = Eligibility::count(&documents.consensus, &estimates);
    let settings = Settings::new(env!("CARGO_PKG_VERSION"), generator_started, now);
    match BandwidthFile::generate(&estimates, counts, &settings) {
        Ok(file) => {
            let written = write(config, &file)?;
            journal.note(Entry::Issued(Issue {
                created_unix_s: now,
                path: written.path.display().to_string(),
                lines: file.relays.len(),
                voted: file.relays.iter().filter(|line| line.vote).count(),
            }));
            Ok(Some(written))
        }
        Err(error @ bwfile::GenerateError::NoResults { .. }) => {
            output.step(format!("no bandwidth file: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Relays of one machine have together no more than was found of their machine at one time. Measurements that ended further apart than `apart`
/// were of different slots.
fn fit_machine(
    estimates: &mut [bwfile::Estimate],
    places: &[usize],
    apart: Duration,
    begun_unix_s: u64,
) {
    let capacity = |it: &bwfile::Estimate| match it.outcome {
        bwfile::Outcome::Measured { capacity_bytes_s, measured_at, .. } => {
            Some((measured_at, Rate::from_byte_per_s(capacity_bytes_s)))
        }
        bwfile::Outcome::Failed { .. } => None,
    };
    let found = places.iter().filter_map(|place| Some((*place, capacity(estimates.get(*place)?)?)));
    let (places, mut rates): (Vec<usize>, Vec<(u64, Rate)>) = found.unzip();
    coordinator::fit_machine(&mut rates, apart, begun_unix_s);
    for (place, (measured_at, rate)) in places.into_iter().zip(rates) {
        let outcome = &mut estimates[place].outcome;
        if rate == Rate::ZERO {
            let reason =
                "others at its address have all that was found of their machine".to_owned();
            *outcome = bwfile::Outcome::Failed { reason, tried_at: Some(measured_at) };
        } else if let bwfile::Outcome::Measured { capacity_bytes_s, .. } = outcome {
            *capacity_bytes_s = rate.as_byte_per_s();
        }
    }
}

/// Lines of the relays that have none, which say why: authorities do not vote by them.
fn unmeasured(
    config: &Config,
    documents: &Documents,
    estimates: &[bwfile::Estimate],
) -> Result<Vec<bwfile::Estimate>, Error> {
    let known: BTreeSet<_> = estimates.iter().map(|it| it.fingerprint).collect();
    let mut lines = Vec::new();
    for Sighting { ids, nickname, left_out, .. } in relays::sightings(documents, config)? {
        let reason = left_out.unwrap_or_else(|| "not measured yet".to_owned());
        lines.push(documents::unmeasured(&ids, &nickname, reason)?);
    }
    lines.retain(|line| !known.contains(&line.fingerprint));
    Ok(lines)
}

/// What a period has found.
fn tell(records: &BTreeMap<usize, Record>, written: Option<&Written>, output: &Output) -> Exit {
    output.quiet();
    let rows: Vec<RelayReport> = records.values().map(RelayReport::from).collect();
    let reports: Vec<Value> = rows.iter().map(|row| row.value("relay")).collect();
    output.text(report::table(&rows));
    if let Some(written) = written {
        output.text(format!("bandwidth file: {}", written.path.display()));
    }
    let path = written.map(|written| &written.path);
    output.record(|| json!({"type": "summary", "relays": reports, "bandwidth_file": path}));
    let all = records.values().all(|record| record.capacity().is_some());
    if all { Exit::Done } else { Exit::Failed }
}

fn write(config: &Config, file: &BandwidthFile) -> Result<Written, Error> {
    let out = &config.out;
    let failed = |source| Error::File { what: "make the folder", path: out.clone(), source };
    std::fs::create_dir_all(out).map_err(failed)?;
    let written = file.write_atomically(out, config.node_ids)?;
    // Of the last day all that there are, of each day before it one.
    const OF_A_DAY: usize = 24;
    bwfile::remove_superseded(out, OF_A_DAY)?;
    bwfile::remove_old(out, config.keep_files.saturating_add(OF_A_DAY))?;
    Ok(written)
}
