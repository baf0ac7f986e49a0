//! The overview and the team.

use crate::app::App;
use crate::format::{cause, large, length, time};
use crate::response::{ErrorResponse, page};
use askama::Template;
use axum::extract::State;
use axum::response::Html;
use onion::Rate;
use store::{Cause, Measurement, MeasurerRow, Overview};

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
    let found = shared.read(move |store| Ok((store.overview(now)?, store.running()?))).await?;
    let (overview, running) = found;
    page(&Page {
        here: "overview",
        progress: progress(&overview, now),
        running: running.iter().map(|it| of_running(it, now)).collect(),
        relays: overview.relays,
        capacity: large(overview.capacity),
        endings: overview.endings,
        broken_off: overview.broken_off,
        causes: overview.causes.iter().map(of_cause).collect(),
        consensus: overview.consensus.map(|it| Consensus {
            valid_after: time(Some(it.valid_after_unix_s)),
            relays: it.relays,
            to_be_measured: it.to_be_measured,
            signers: it.signers.map_or_else(
                || "signatures not verified".to_owned(),
                |count| format!("valid signatures of {count} authorities"),
            ),
            source: it.source,
        }),
        file: overview.file.map(|it| File {
            created: time(Some(it.created_unix_s)),
            path: it.path,
            lines: it.lines,
            voted: it.voted,
        }),
    })
}

/// Without a report for this time, in seconds, the coordinator is considered down.
pub(crate) const SILENT_S: u64 = 2 * 3600;

fn progress(overview: &Overview, now: u64) -> Option<Progress> {
    let reported = overview.progress?;
    let counts = reported.counts;
    let all = counts.waiting + counts.running + counts.done;
    let end = overview.period.as_ref().map(|it| it.begin_unix_s.saturating_add(it.length_s));
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

fn of_running(it: &Measurement, now: u64) -> Running {
    Running {
        fingerprint: crate::bandwidth_line::fingerprint(it.relay),
        nickname: it.nickname.clone(),
        seconds: now.saturating_sub(it.started_unix_s),
    }
}

fn of_cause(it: &Cause) -> CauseRow {
    CauseRow {
        name: it.name.clone(),
        word: cause(&it.name),
        blame: it.blame.clone().unwrap_or_else(|| "lower bound".to_owned()),
        count: it.count,
        example: it.example.clone(),
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
    let measurer = |it: &MeasurerRow| Measurer {
        place: it.place,
        address: it.address.clone(),
        key: it.key.clone(),
        capacity: large(it.capacity),
        state: it.state.clone(),
        since: time(Some(it.since_unix_s)),
        losses: it.losses,
        detail: it.detail.clone(),
    };
    let capacity: Rate = rows.iter().map(|it| it.capacity).sum();
    let measurers = rows.iter().map(measurer).collect();
    page(&Team { here: "measurers", measurers, capacity: large(capacity) })
}
