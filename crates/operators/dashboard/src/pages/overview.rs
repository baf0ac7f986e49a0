//! The overview and the team.

use crate::app::App;
use crate::figures::{self, in_page};
use crate::format::{cause, digits, large, length, time};
use crate::metrics::Published;
use crate::response::{ErrorResponse, page};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Html;
use documents::gate::Outcome;
use onion::Rate;
use std::time::Duration;
use store::{Cause, Measurement, MeasurerRow, Overview, PathRow};

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    here: &'static str,
    progress: Option<Progress>,
    running: Vec<Running>,
    relays: u64,
    capacity: String,
    endings: [u64; 3],
    broken_off: u64,
    causes: Vec<CauseRow>,
    consensus: Option<Consensus>,
    file: Option<File>,
    gate: Option<String>,
    figures: Vec<String>,
}

/// Progress of the period.
struct Progress {
    waiting: usize,
    running: usize,
    done: usize,
    without_slot: usize,
    all: usize,
    percent: usize,
    expected: String,
    reported: String,
    is_old: bool,
}

struct Running {
    fingerprint: String,
    nickname: String,
    seconds: u64,
}

struct CauseRow {
    name: String,
    word: String,
    blame: String,
    count: u64,
    example: String,
}

struct Consensus {
    valid_after: String,
    relays: u64,
    to_be_measured: u64,
    signers: String,
    source: String,
}

struct File {
    created: String,
    path: String,
    lines: u64,
    voted: u64,
}

pub(crate) async fn overview(State(shared): App) -> Result<Html<String>, ErrorResponse> {
    let now = shared.now();
    let found = shared.read(move |store| {
        let figures = (figures::read_totals(store, now)?, store.weighed()?);
        Ok((store.overview(now)?, store.running()?, figures))
    });
    let (overview, running, (totals, weighed)) = found.await?;
    let has_figures = overview.relays > 0;
    let figures = has_figures.then(|| {
        let totals = in_page(&figures::totals(&totals), "/totals.svg");
        [totals, in_page(&figures::weights(&weighed), "/weights.svg")]
    });
    page(&Page {
        here: "overview",
        progress: progress(&overview, now),
        running: running.iter().map(|measurement| of_running(measurement, now)).collect(),
        relays: overview.relays,
        capacity: large(overview.capacity),
        endings: overview.endings,
        broken_off: overview.broken_off,
        figures: figures.into_iter().flatten().collect(),
        causes: overview.causes.iter().map(of_cause).collect(),
        consensus: overview.consensus.map(|consensus| Consensus {
            valid_after: time(Some(consensus.valid_after_unix_s)),
            relays: consensus.relays,
            to_be_measured: consensus.to_be_measured,
            signers: consensus.signers.map_or_else(
                || "signatures not verified".to_owned(),
                |count| format!("valid signatures of {count} authorities"),
            ),
            source: consensus.source,
        }),
        file: overview.file.map(|file| File {
            created: time(Some(file.created_unix_s)),
            path: file.path,
            lines: file.lines,
            voted: file.voted,
        }),
        gate: Published::read(&shared.options.file).gate.as_ref().map(in_words),
    })
}

/// Whether the newest bandwidth file passed the gate.
fn in_words(outcome: &Outcome) -> String {
    let failed: Vec<&str> = outcome.failed().map(|check| check.check.word()).collect();
    match failed[..] {
        [] => "passed".to_owned(),
        _ => format!("failed ({}), so tor reads an older file", failed.join(", ")),
    }
}

/// Without a report for this time, in seconds, the coordinator is considered down.
pub(crate) const SILENT_S: u64 = 2 * 3600;

fn progress(overview: &Overview, now: u64) -> Option<Progress> {
    let reported = overview.progress?;
    let counts = reported.counts;
    let all = counts.waiting + counts.running + counts.done;
    let end =
        overview.period.as_ref().map(|period| period.begin_unix_s.saturating_add(period.length_s));
    let expected = match end {
        _ if counts.waiting + counts.running == 0 => "All relays are measured".to_owned(),
        Some(end) if end > now => format!(
            "The remaining relays have slots in the next {}, until {}",
            length(end - now),
            time(Some(end))
        ),
        _ => "The period has ended".to_owned(),
    };
    Some(Progress {
        waiting: counts.waiting,
        running: counts.running,
        done: counts.done,
        without_slot: counts.without_slot,
        all,
        percent: (counts.done * 100).checked_div(all).unwrap_or(100),
        expected,
        reported: time(Some(reported.at_unix_s)),
        is_old: reported.at_unix_s.saturating_add(SILENT_S) < now,
    })
}

fn of_running(measurement: &Measurement, now: u64) -> Running {
    Running {
        fingerprint: measurement.relay.to_string(),
        nickname: measurement.nickname.clone(),
        seconds: now.saturating_sub(measurement.started_unix_s),
    }
}

fn of_cause(entry: &Cause) -> CauseRow {
    CauseRow {
        name: entry.name.clone(),
        word: cause(&entry.name),
        blame: entry.blame.clone().unwrap_or_else(|| "lower bound".to_owned()),
        count: entry.count,
        example: entry.example.clone(),
    }
}

#[derive(Template)]
#[template(path = "measurers.html")]
struct Team {
    here: &'static str,
    measurers: Vec<Measurer>,
    capacity: String,
}

struct Measurer {
    place: u64,
    address: String,
    key: String,
    capacity: String,
    state: String,
    since: String,
    losses: u64,
    detail: String,
}

pub(crate) async fn measurers(State(shared): App) -> Result<Html<String>, ErrorResponse> {
    let now = shared.now();
    let rows = shared.read(move |store| store.measurers(now)).await?;
    let measurer = |row: &MeasurerRow| Measurer {
        place: row.place,
        address: row.address.clone(),
        key: row.key.clone(),
        capacity: large(row.capacity),
        state: row.state.clone(),
        since: time(Some(row.since_unix_s)),
        losses: row.losses,
        detail: row.detail.clone(),
    };
    let capacity: Rate = rows.iter().map(|row| row.capacity).sum();
    let measurers = rows.iter().map(measurer).collect();
    page(&Team { here: "measurers", measurers, capacity: large(capacity) })
}

/// Rows of the table of paths.
const PATHS: usize = 200;

#[derive(Template)]
#[template(path = "measurer.html")]
struct Paths {
    here: &'static str,
    address: String,
    key: String,
    count: usize,
    median_rtt: String,
    held_back: usize,
    figure: String,
    rows: Vec<PathCells>,
}

struct PathCells {
    fingerprint: String,
    nickname: String,
    rtt: String,
    loss: String,
    held_back: String,
    seen: String,
}

pub(crate) async fn measurer(
    State(shared): App,
    Path(key): Path<String>,
) -> Result<Html<String>, ErrorResponse> {
    let now = shared.now();
    let unknown = ErrorResponse::NotFound(format!("no measurer {key} is in the store"));
    let wanted = key.clone();
    let (team, paths) =
        shared.read(move |store| Ok((store.measurers(now)?, store.paths_of(&wanted)?))).await?;
    let Some(row) = team.into_iter().find(|row| row.key == key) else { return Err(unknown) };
    let mut rtts: Vec<_> = paths.iter().filter_map(|path| path.path.rtt).collect();
    rtts.sort_unstable();
    page(&Paths {
        here: "",
        address: row.address,
        figure: in_page(&figures::paths(&paths), &format!("/measurers/{key}/paths.svg")),
        key,
        count: paths.len(),
        median_rtt: milliseconds(rtts.get(rtts.len() / 2).copied()),
        held_back: paths.iter().filter(|path| path.path.limit.is_some()).count(),
        rows: paths.iter().take(PATHS).map(path_cells).collect(),
    })
}

fn milliseconds(time: Option<Duration>) -> String {
    time.map_or_else(
        || "–".to_owned(),
        |time| format!("{} ms", digits(time.as_secs_f64() * 1000.0, 1)),
    )
}

fn path_cells(row: &PathRow) -> PathCells {
    let percent = |ppm: u32| format!("{:.3} %", f64::from(ppm) / 10_000.0);
    PathCells {
        fingerprint: row.relay.to_string(),
        nickname: row.nickname.clone(),
        rtt: milliseconds(row.path.rtt),
        loss: row.path.loss_ppm.map_or_else(|| "–".to_owned(), percent),
        held_back: row.path.limit.map_or_else(String::new, large),
        seen: time(Some(row.seen_unix_s)),
    }
}
