//! Periods and their measurements.

use crate::app::App;
use crate::format::{cause, length, outcome, rate, time};
use crate::response::{ErrorResponse, page};
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Html;
use serde::Deserialize;
use store::{Measurement, PeriodSummary, Reader, Week};

/// Periods on a page.
pub(crate) const PERIODS: usize = 14;
/// Weeks whose verdicts are shown.
const WEEKS: u64 = 26;
/// Measurements on a page.
const ROWS: usize = 200;

#[derive(Template)]
#[template(path = "periods.html")]
struct All {
    here: &'static str,
    periods: Vec<Period>,
    weeks: Vec<WeekRow>,
}

/// Verdicts of a week.
struct WeekRow {
    begin: String,
    conclusive: u64,
    lower_bounds: u64,
    failed: u64,
    /// Shares in per cent: conclusive, and with lower bounds.
    bar: [f64; 2],
}

impl WeekRow {
    fn from_week(week: &Week) -> Self {
        let [conclusive, lower_bounds, failed] = week.endings;
        let all = (conclusive + lower_bounds + failed).max(1) as f64;
        let percent = |count: u64| count as f64 * 100.0 / all;
        Self {
            begin: time(Some(week.begin_unix_s)),
            conclusive,
            lower_bounds,
            failed,
            bar: [percent(conclusive), percent(conclusive + lower_bounds)],
        }
    }
}

struct Period {
    begin_unix_s: u64,
    begin: String,
    length: String,
    slot_s: u64,
    measurements: u64,
    relays: u64,
    failed: u64,
    /// Used slots, free slots, and the share of used ones in per cent, among slots that have begun.
    slots: Option<(u64, u64, f64)>,
    seed: String,
}

pub(crate) async fn periods(State(shared): App) -> Result<Html<String>, ErrorResponse> {
    let now = shared.now();
    let read = move |store: &Reader| Ok((store.periods(PERIODS)?, store.weeks(now, WEEKS)?));
    let (periods, weeks) = shared.read(read).await?;
    page(&All {
        here: "periods",
        periods: periods.iter().map(|period| period_row(period, now)).collect(),
        weeks: weeks.iter().map(WeekRow::from_week).collect(),
    })
}

fn period_row(summary: &PeriodSummary, now: u64) -> Period {
    let hex = |seed: [u8; 32]| seed.iter().map(|byte| format!("{byte:02x}")).collect();
    Period {
        begin_unix_s: summary.period.begin_unix_s,
        begin: time(Some(summary.period.begin_unix_s)),
        length: length(summary.period.length_s),
        slot_s: summary.period.slot_s,
        measurements: summary.measurements,
        relays: summary.relays,
        failed: summary.failed,
        slots: slots(summary, now),
        seed: summary.period.seed.map(hex).unwrap_or_default(),
    }
}

/// Used and free slots among those that have begun. Later slots are secret.
fn slots(summary: &PeriodSummary, now: u64) -> Option<(u64, u64, f64)> {
    let passed_s = now.saturating_sub(summary.period.begin_unix_s).min(summary.period.length_s);
    let all = passed_s.checked_div(summary.period.slot_s)?.max(summary.slots_used);
    let percent = summary.slots_used as f64 * 100.0 / all.max(1) as f64;
    Some((summary.slots_used, all - summary.slots_used, percent))
}

#[derive(Template)]
#[template(path = "period.html")]
struct One {
    here: &'static str,
    begin_unix_s: u64,
    begin: String,
    rows: Vec<Row>,
    number: usize,
    has_more: bool,
}

struct Row {
    slot: String,
    started: String,
    fingerprint: String,
    nickname: String,
    state: &'static str,
    class: &'static str,
    capacity: String,
    cause: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    page: String,
}

pub(crate) async fn period(
    State(shared): App,
    Path(begin): Path<String>,
    Query(part): Query<Part>,
) -> Result<Html<String>, ErrorResponse> {
    let begin_unix_s = begin.parse::<u64>();
    let begin_unix_s =
        begin_unix_s.map_err(|_| ErrorResponse::NotFound(format!("{begin} is not a time")))?;
    let number = part.page.parse::<usize>().unwrap_or(1).clamp(1, 1_000_000);
    let skip = (number - 1) * ROWS;
    // One more row than shown reveals whether there are more.
    let mut found =
        shared.read(move |store| store.measurements_in(begin_unix_s, skip, ROWS + 1)).await?;
    let has_more = found.len() > ROWS;
    found.truncate(ROWS);
    let begin = time(Some(begin_unix_s));
    let rows = found.iter().map(row).collect();
    page(&One { here: "", begin_unix_s, begin, rows, number, has_more })
}

fn row(measurement: &Measurement) -> Row {
    Row {
        slot: measurement.slot.map_or_else(|| "–".to_owned(), |slot| slot.to_string()),
        started: time(Some(measurement.started_unix_s)),
        fingerprint: measurement.relay.to_string(),
        nickname: measurement.nickname.clone(),
        state: outcome(measurement),
        class: measurement.state.name(),
        capacity: rate(measurement.capacity),
        cause: measurement.cause.as_deref().map(cause).unwrap_or_default(),
    }
}
