//! The page of one relay.

use crate::app::{App, Shared};
use crate::bandwidth_line::weights;
use crate::figures::{self, MEASUREMENTS, in_page};
use crate::format::{cause, outcome, rate, time};
use crate::response::{self, ErrorResponse, page};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Html;
use std::sync::Arc;
use store::{Audience, Measurement, RelayRow};

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
    figures: Vec<String>,
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
        let explainer = store.explainer(Audience::Operator, now)?;
        let explanation = explainer.explain(&row, &measurements, line)?;
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
    let fingerprint = relay.rsa.to_string();
    let latest = measurements.iter().find(|measurement| !measurement.seconds.is_empty());
    let seconds = latest.map(|measurement| {
        let file = format!("/measurements/{}/seconds.svg", measurement.id);
        in_page(&figures::seconds(measurement), &file)
    });
    let has_history = measurements.iter().any(|measurement| measurement.capacity.is_some());
    let history = has_history.then(|| {
        let file = format!("/relays/{fingerprint}/history.svg");
        in_page(&figures::history(&measurements), &file)
    });
    page(&Page {
        here: "",
        fingerprint,
        nickname: relay.nickname.clone(),
        address: relay.address.clone(),
        first_seen: time(Some(relay.first_seen_unix_s)),
        last_seen: time(Some(relay.last_seen_unix_s)),
        explanation,
        figures: seconds.into_iter().chain(history).collect(),
        rows: measurements.iter().take(ROWS).map(row).collect(),
        more: measurements.len().saturating_sub(ROWS),
    })
}

fn row(measurement: &Measurement) -> Row {
    Row {
        id: measurement.id,
        ended: time(measurement.ended_unix_s),
        state: outcome(measurement),
        class: measurement.state.name(),
        capacity: rate(measurement.capacity),
        mode: measurement.mode.map_or("", store::mode_word),
        rounds: measurement.rounds,
        turn: measurement.number,
        cause: measurement.cause.as_deref().map(cause).unwrap_or_default(),
        reason: measurement.reason.clone().unwrap_or_default(),
        has_seconds: !measurement.seconds.is_empty(),
    }
}
