//! The page of one relay.

use crate::app::{App, Shared};
use crate::bandwidth_line::weights;
use crate::format::{cause, rate, time};
use crate::response::{self, ErrorResponse, page};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Html;
use std::sync::Arc;
use store::{Measurement, RelayRow};

/// Measurements that are shown and explained: a year of daily ones.
const MEASUREMENTS: usize = 400;
/// Rows of the table.
const ROWS: usize = 60;

#[derive(Template)]
#[template(path = "relay.html")]
struct Page {
    here: &'static str,
    fingerprint: String,
    nickname: String,
    address: String,
    first_seen: String,
    last_seen: String,
    explanation: Vec<String>,
    latest: Option<i64>,
    has_history: bool,
    rows: Vec<Row>,
    more: usize,
}

struct Row {
    id: i64,
    ended: String,
    state: &'static str,
    class: &'static str,
    capacity: String,
    mode: &'static str,
    rounds: u32,
    turn: u32,
    cause: String,
    reason: String,
    has_seconds: bool,
}

/// A relay with the explanation of its weight.
pub(crate) struct ExplainedRelay {
    pub(crate) relay: RelayRow,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) explanation: Vec<String>,
}

/// Reads a relay and explains its weight.
pub(crate) async fn explained(
    shared: &Arc<Shared>,
    name: &str,
) -> Result<ExplainedRelay, ErrorResponse> {
    let relay = response::relay(name)?;
    let now = shared.now();
    let options = shared.options.clone();
    let found = shared.read(move |store| {
        let Some(row) = store.relay(relay)? else { return Ok(None) };
        let measurements = store.measurements_of(relay, MEASUREMENTS)?;
        let line = weights(&options.file, relay).ok();
        let explanation = store.explain(&row, &measurements, line, now)?;
        Ok(Some(ExplainedRelay { relay: row, measurements, explanation }))
    });
    let unknown = || ErrorResponse::NotFound(format!("no relay {name} is in the store"));
    found.await?.ok_or_else(unknown)
}

pub(crate) async fn relay(
    State(shared): App,
    Path(name): Path<String>,
) -> Result<Html<String>, ErrorResponse> {
    let ExplainedRelay { relay, measurements, explanation } = explained(&shared, &name).await?;
    page(&Page {
        here: "",
        fingerprint: relay.rsa.to_string(),
        nickname: relay.nickname.clone(),
        address: relay.address.clone(),
        first_seen: time(Some(relay.first_seen_unix_s)),
        last_seen: time(Some(relay.last_seen_unix_s)),
        explanation,
        latest: measurements.iter().find(|it| !it.seconds.is_empty()).map(|it| it.id),
        has_history: measurements.iter().any(|it| it.capacity.is_some()),
        rows: measurements.iter().take(ROWS).map(row).collect(),
        more: measurements.len().saturating_sub(ROWS),
    })
}

fn row(it: &Measurement) -> Row {
    Row {
        id: it.id,
        ended: time(it.ended_unix_s),
        state: it.state.in_words(),
        class: it.state.name(),
        capacity: rate(it.capacity),
        mode: it.mode.map_or("", store::mode_word),
        rounds: it.rounds,
        turn: it.number,
        cause: it.cause.as_deref().map(cause).unwrap_or_default(),
        reason: it.reason.clone().unwrap_or_default(),
        has_seconds: !it.seconds.is_empty(),
    }
}
