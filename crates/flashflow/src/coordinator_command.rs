//! `flashflow coordinator`: measures all relays with a team of measurers, and writes bandwidth files.

mod campaign;
mod config;
mod past;
mod relays;
mod team;

pub(crate) use config::{Config, Mate};
pub(crate) use team::RemoteTeam;

use crate::config::log_to_stderr;
use crate::error::Error;
use clap::Args;
use link::unix_time_s;
use netdoc::bwfile::{self, BandwidthFile, Eligibility, NodeIdStyle, Settings, Written};
use onion::Duration;
use report::RelayReport;
use serde_json::{Value, json};
use std::path::PathBuf;
use terminal::{Exit, Interrupt, Output};

/// Be a coordinator: measure relays with a team of measurers, and write bandwidth files.
///
/// The measurers are `flashflow measurer` processes, on this machine or others. Several relays are
/// measured at once, as far as the team's capacity allows. Relays that take part are measured as an echo,
/// all others in transit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow coordinator --config coordinator.toml --once
  flashflow coordinator --config coordinator.toml

See docs/coordinator.toml for what the configuration may hold. Without --once, all relays are measured
again each period. What happens is logged on stderr; RUST_LOG=debug says more.

Exit status: 0 each relay has an estimate; 1 something failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct CoordinatorOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Measure all relays once, and end.
    #[arg(long)]
    once: bool,
    /// Print results as JSON, one value a line; the last one of each period is its summary.
    #[arg(long)]
    pub(crate) json: bool,
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
    tracing::info!("coordinator {} with {} measurers", config.secret.public(), team.len());
    interrupt.wind_up_in_order();
    loop {
        let begun = unix_time_s();
        let done = period(&config, &team, started, output, interrupt);
        if interrupt.is_requested() {
            output.quiet();
            output.step("interrupted");
            output.record(|| json!({"type": "interrupted"}));
            return Ok(Exit::Interrupted);
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

/// Measures each relay, and writes the bandwidth file.
fn period(
    config: &Config,
    team: &RemoteTeam,
    generator_started: u64,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    output.doing("asking the measurers, and fetching the consensus");
    let documents = relays::documents(config)?;
    let (history, policy) = (past::history(&config.out), config.history_policy());
    let expectations = history.expectations(policy, unix_time_s());
    let relays = relays::relays(&documents, config, &expectations)?;
    let capacities = team.greet(output)?;
    output.step(format!("{} relays to be measured", relays.len()));
    let records = campaign::run(config, team, capacities, &relays, output, interrupt)?;
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    let now = unix_time_s();
    let mut estimates: Vec<bwfile::Estimate> = Vec::new();
    for (place, relay) in relays.iter().enumerate() {
        let ids = &relay.subject.target().ids;
        let record = records.get(&place);
        let kept = history.kept(&policy, ids.rsa, record, now);
        match (kept, record) {
            (Some(kept), _) => estimates.push(documents.entry_of(ids, relay.nickname, kept)),
            (None, Some(record)) => estimates.push(documents.entry(record)?),
            (None, None) => {}
        }
    }
    let counts = Eligibility::count(&documents.consensus, &estimates);
    let settings = Settings::new(env!("CARGO_PKG_VERSION"), generator_started, now);
    let written = match BandwidthFile::generate(&estimates, counts, &settings) {
        Ok(file) => Some(write(config, &file)?),
        Err(error @ bwfile::GenerateError::NoResults { .. }) => {
            output.step(format!("no bandwidth file: {error}"));
            None
        }
        Err(error) => return Err(error.into()),
    };
    output.quiet();
    let rows: Vec<RelayReport> = records.values().map(RelayReport::from).collect();
    let reports: Vec<Value> = rows.iter().map(|row| row.value("relay")).collect();
    output.text(report::table(&rows));
    if let Some(written) = &written {
        output.text(format!("bandwidth file: {}", written.path.display()));
    }
    let path = written.as_ref().map(|written| &written.path);
    output.record(|| json!({"type": "summary", "relays": reports, "bandwidth_file": path}));
    let all = records.values().all(|record| record.capacity().is_some());
    Ok(if all { Exit::Done } else { Exit::Failed })
}

fn write(config: &Config, file: &BandwidthFile) -> Result<Written, Error> {
    let out = &config.out;
    let failed = |source| Error::File { what: "make the folder", path: out.clone(), source };
    std::fs::create_dir_all(out).map_err(failed)?;
    let written = file.write_atomically(out, NodeIdStyle::default())?;
    bwfile::remove_old(out, config.keep_files)?;
    Ok(written)
}
