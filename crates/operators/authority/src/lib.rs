//! The coordinator of a bandwidth authority, and the [shell] of [`coordinator::period::Period`] on a real machine.
//!
//! This crate owns what the decisions must not know: the configuration file, documents from an authority or from files,
//! sessions with measurers, links to relays, the journal in its store, bandwidth files, seeds on disk, and the clock. It decides
//! nothing about measurements.

mod agreed;
mod agreeing;
mod check;
mod clock;
mod config;
pub mod config_file;
mod daemon;
pub mod events;
mod journal;
pub mod lines;
pub mod log;
mod network;
pub mod one_relay;
mod past;
mod publication;
mod seed;
pub mod shell;
pub mod stop_file;
mod suspects;
mod team;

pub use check::check;
pub use config::{
    Authorities, Authority, Config, ConfiguredMeasurer, Gate, Schedule, USUAL_TABLE, slot_s,
};
pub use network::{router, view};
pub use publication::line;
pub use team::RemoteTeam;

use agreed::Seeds;
use agreeing::Party;
use cli::Error;
use coordinator::period::{Bounds, Knowledge, MeasurerConfig, PeriodConfig, Timing};
use coordinator::{HistoryPolicy, Params, Record};
use daemon::Daemon;
use journal::Journal;
use lines::Line;
use link::{ClockWatch, unix_time_s};
use netdoc::bwfile::Written;
use onion::{Duration, Rate};
use report::RelayReport;
use serde_json::Value;
use shell::{Beginning, Team as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;
use std::{fs, thread};
use terminal::{End, Exit, Hangup, Interrupt, Output};

/// The delay before a period that could not begin, for example because the authority is down, is retried.
const RETRY: Duration = Duration::from_secs(60);

/// Interval at which the stop file is looked for between periods.
const STOP_FILE_LOOK: Duration = Duration::from_millis(500);

/// The state that all periods share.
#[derive(Clone, Copy)]
struct Common<'env> {
    config: &'env Config,
    team: &'env RemoteTeam,
    journal: &'env Journal,
    output: &'env Output,
    interrupt: &'env Interrupt,
    hangup: &'env Hangup,
    clock: &'env ClockWatch,
}

/// Measures period after period by the configuration at `path`, until the operator requests the end; with `is_once`,
/// measures all relays once.
///
/// # Errors
/// The configuration is wrong, the store or the seed cannot be used, or with `is_once` the period cannot begin.
pub fn run(
    path: &Path,
    is_once: bool,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let (started, clock) = (unix_time_s(), ClockWatch::start());
    let config = Config::read(path)?;
    let team = RemoteTeam::new(&config)?;
    // `stop-all` needs the folder from the first measurement on.
    publication::make_folder(&config.out)?;
    let journal = Journal::open(&config, started)?;
    let hangup = Hangup::install()?;
    tracing::info!("coordinator {} with {} measurers", config.secret.public(), team.size());
    interrupt.wind_up_in_order();
    let common = Common {
        config: &config,
        team: &team,
        journal: &journal,
        output,
        interrupt,
        hangup: &hangup,
        clock: &clock,
    };
    if is_once {
        config.check_stop_file()?;
        let begin_unix_s = journal.unused_second(unix_time_s)?;
        let length_s = config.period.as_secs();
        let bounds = Bounds { begin_unix_s, length_s, slot_s: config.slot_s };
        reload_if_asked(common);
        let exit = play(common, bounds, Timing::Greedy, Occurrence::Once, started)?;
        return Ok(stored_or_failed(common, || exit));
    }
    if config.schedule == Schedule::Greedy {
        return periods(common, None, started);
    }
    let seeds = Seeds::open(&config.seed)?;
    let Some(authorities) = &config.authorities else {
        return periods(common, Some(&seeds), started);
    };
    let party = Party::start(common, authorities, &seeds)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| party.run(&is_over));
        let _over = Over(&is_over);
        periods(common, Some(&seeds), started)
    })
}

/// Sets the flag when it is dropped, also in a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures period after period, until the operator requests the end: in slots by these seeds, or as early as possible.
fn periods(common: Common<'_>, seeds: Option<&Seeds>, started: u64) -> Result<Exit, Error> {
    let Common { config, output, interrupt, .. } = common;
    let mut last_problem = String::new();
    loop {
        wait_while_stopped(common);
        if interrupt.is_requested() {
            return Ok(stored_or_failed(common, || interrupted(output)));
        }
        let bounds = Bounds::at(unix_time_s(), config.period, config.slot_s);
        let done = match seeds {
            Some(seeds) => slotted_period(common, seeds, bounds, started),
            None => greedy_period(common, bounds, started),
        };
        if interrupt.is_requested() {
            return Ok(stored_or_failed(common, || interrupted(output)));
        }
        let now = unix_time_s();
        let rest_s = if bounds.is_over(now) { 0 } else { bounds.end_unix_s() - now };
        let rest = Duration::from_secs(rest_s);
        let problem = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let rest = match &done {
            Err(error) => {
                // The same one is logged once.
                if problem != last_problem {
                    log_error(error, output);
                }
                // The error may be temporary.
                RETRY.min(rest)
            }
            // The clock was set, or all measurements were stopped.
            Ok(Exit::Interrupted) => continue,
            Ok(_) => rest,
        };
        last_problem = problem;
        clock::wait(common, rest, done.is_ok());
    }
}

/// Waits until there is no stop file, or the operator requests the end.
fn wait_while_stopped(Common { config, output, interrupt, .. }: Common<'_>) {
    let Err(reason) = config.check_stop_file() else { return };
    log_error(&reason, output);
    while config.check_stop_file().is_err() {
        if interrupt.wait(STOP_FILE_LOOK) {
            return;
        }
    }
    tracing::info!("the stop file is gone: measurements continue");
}

/// Logs an error after which the coordinator continues.
fn log_error(error: &Error, output: &Output) {
    tracing::error!("{error}");
    output.record(|| End::Error { error: error.to_string() });
}

fn interrupted(output: &Output) -> Exit {
    output.quiet();
    tracing::info!("interrupted");
    output.record(|| End::Interrupted);
    Exit::Interrupted
}

/// Measures each relay that has no result of this period, as early as possible.
fn greedy_period(common: Common<'_>, bounds: Bounds, started: u64) -> Result<Exit, Error> {
    reload_if_asked(common);
    play(common, bounds, Timing::Greedy, Occurrence::Repeated(None), started)
}

/// Measures relays in their slots until the end of the period.
fn slotted_period(
    common: Common<'_>,
    seeds: &Seeds,
    bounds: Bounds,
    started: u64,
) -> Result<Exit, Error> {
    tracing::info!("a period of {} slots", bounds.slots());
    play(
        common,
        bounds,
        common.config.schedule.timing(),
        Occurrence::Repeated(Some(seeds)),
        started,
    )
}

/// Logs an error if entries of the journal did not reach the store, and then ends: [`Exit::Done`] becomes [`Exit::Failed`].
fn stored_or_failed(
    Common { journal, output, .. }: Common<'_>,
    end: impl FnOnce() -> Exit,
) -> Exit {
    let lost = journal.unwritten();
    if lost > 0 {
        let problem = format!("{lost} entries could not be written to the store, and are lost");
        log_error(&Error::Failed(problem), output);
    }
    match end() {
        Exit::Done if lost > 0 => Exit::Failed,
        exit => exit,
    }
}

/// Whether further periods follow.
#[derive(Clone, Copy)]
enum Occurrence<'s> {
    /// This is the only period.
    Once,
    /// Others follow, with slots by these seeds, if there are slots.
    Repeated(Option<&'s Seeds>),
}

fn play(
    common: Common<'_>,
    bounds: Bounds,
    timing: Timing,
    occurrence: Occurrence<'_>,
    started: u64,
) -> Result<Exit, Error> {
    let Common { config, team, journal, output, interrupt, .. } = common;
    let pasts = journal.resume(bounds.begin_unix_s)?;
    let history = journal.history(&team.keys())?;
    let period = PeriodConfig {
        bounds,
        timing,
        params: config.params,
        policy: config.history_policy(),
        measurers: team.configured(),
        at_once_max: config.at_once_max.map(std::num::NonZeroU32::get),
        echo_rounds: config.echo_rounds,
        always_authenticate: false,
        path: None,
        measurers_min: 1,
        repeats_failures: true,
        certain: config.together.clone(),
        refresh: config.refresh,
        secret: shell::random()?,
    };
    output.doing("asking the measurers, and fetching the consensus");
    let beginning = Beginning {
        config: period,
        consent: config.consent(),
        knowledge: Knowledge { history, pasts },
        key_seed: config.secret.seed(),
    };
    let (end, written, is_incomplete, is_clock_right) = thread::scope(|scope| {
        let mut daemon = Daemon {
            scope,
            common,
            seeds: match occurrence {
                Occurrence::Repeated(seeds) => seeds,
                Occurrence::Once => None,
            },
            begin_unix_s: bounds.begin_unix_s,
            generator_started: started,
            network: None,
            written: None,
            repeats: matches!(occurrence, Occurrence::Repeated(_)),
            has_clock_jumped: false,
            is_incomplete: false,
            is_unpublished: false,
        };
        let end = shell::play(scope, &common, &mut daemon, beginning, interrupt.requested())?;
        let is_clock_right = daemon.is_clock_right();
        let is_incomplete = daemon.is_incomplete || daemon.is_unpublished;
        Ok::<_, Error>((end, daemon.written, is_incomplete, is_clock_right))
    })?;
    journal.tidy(config, is_clock_right.then(unix_time_s));
    if end.is_interrupted {
        return Ok(Exit::Interrupted);
    }
    let exit = show_result(&end.records, written.as_ref(), output);
    Ok(if is_incomplete { Exit::Failed } else { exit })
}

/// Records the seeds of finished periods, so that anyone can verify the plan. A seed that was drawn in the middle of a
/// period was not that period's.
fn publish_seeds(Common { config, journal, .. }: Common<'_>, seeds: &Seeds) -> Result<(), Error> {
    let drawn = fs::metadata(&config.seed).and_then(|metadata| metadata.modified()).ok();
    let drawn = drawn.and_then(|drawn| drawn.duration_since(UNIX_EPOCH).ok());
    journal.publish_seeds(unix_time_s(), |begin_unix_s, length_s| {
        if let Some(agreed) = seeds.agreed(begin_unix_s, length_s) {
            return Some(*agreed.seed.as_bytes());
        }
        let is_of_it = drawn.is_some_and(|drawn| drawn.as_secs() < begin_unix_s);
        is_of_it.then(|| *seeds.own(begin_unix_s, length_s).as_bytes())
    })
}

/// The configuration of a period without slots, in which relays are measured one after the other.
///
/// # Errors
/// The operating system has no random bytes.
pub fn one_by_one(
    params: Params,
    guess: Rate,
    measurers: Vec<MeasurerConfig>,
    echo_rounds: u32,
) -> Result<PeriodConfig, Error> {
    const LENGTH: Duration = Duration::from_secs(24 * 3600);
    let usual = HistoryPolicy::over(LENGTH);
    Ok(PeriodConfig {
        bounds: Bounds {
            begin_unix_s: unix_time_s(),
            length_s: LENGTH.as_secs(),
            slot_s: slot_s(&params),
        },
        timing: Timing::Greedy,
        params,
        policy: HistoryPolicy { default: guess, rounds_allowed: echo_rounds, ..usual },
        measurers,
        at_once_max: Some(1),
        echo_rounds,
        always_authenticate: false,
        path: None,
        measurers_min: 1,
        repeats_failures: true,
        certain: Vec::new(),
        refresh: LENGTH,
        secret: shell::random()?,
    })
}

/// Reloads the opt-in list and the measurement policy, and names changed settings that need a restart, if the operator
/// requested it. Returns whether it was requested.
fn reload_if_asked(Common { config, team, output, hangup, .. }: Common<'_>) -> bool {
    let is_asked = hangup.take();
    if is_asked {
        match config.reload_consent() {
            Ok(()) => {
                team.hand_out(&config.consent());
                let policy = if config.consent().policy().is_some() {
                    " and the measurement policy"
                } else {
                    ""
                };
                tracing::info!("reloaded the opt-in list{policy}");
            }
            Err(error) => log_error(&error, output),
        }
        match config.changed_settings() {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                tracing::warn!("only a restart changes: {}", names.join(", "));
            }
            Err(error) => log_error(&error, output),
        }
    }
    is_asked
}

/// Prints the results of a period.
fn show_result(records: &[Record], written: Option<&Written>, output: &Output) -> Exit {
    output.quiet();
    let rows: Vec<RelayReport> = records.iter().map(RelayReport::from).collect();
    let reports: Vec<Value> = rows.iter().map(|row| row.value("relay")).collect();
    output.text(report::table(&rows));
    if let Some(written) = written {
        output.text(format!("bandwidth file: {}", written.path.display()));
    }
    let bandwidth_file = written.map(|written| written.path.as_path());
    output.record(|| Line::Summary { relays: reports, bandwidth_file });
    let all = records.iter().all(|record| record.capacity().is_some());
    if all { Exit::Done } else { Exit::Failed }
}
