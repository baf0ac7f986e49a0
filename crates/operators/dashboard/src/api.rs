//! The data of the pages as JSON. Rates are in bytes per second, times in Unix seconds.

use crate::app::App;
use crate::metrics::Published;
use crate::pages::{self, RelayParameters};
use crate::response::ErrorResponse;
use axum::Json;
use axum::extract::{Path, Query, State};
use onion::Rate;
use serde_json::{Value, json};
use store::rows::RelayLine;
use store::{Measurement, RelayRow};

pub(crate) async fn overview(State(shared): App) -> Result<Json<Value>, ErrorResponse> {
    let now = shared.now();
    let overview = shared.read(move |store| store.overview(now)).await?;
    let [conclusive, lower_bound, failed] = overview.endings;
    let causes = overview.causes.iter().map(|cause| {
        json!({"name": cause.name, "blame": cause.blame, "count": cause.count, "example": cause.example})
    });
    Ok(Json(json!({
        "now_unix_s": now,
        "progress": overview.progress.map(|progress| json!({
            "at_unix_s": progress.at_unix_s, "period_unix_s": progress.period_unix_s, "waiting": progress.counts.waiting,
            "running": progress.counts.running, "done": progress.counts.done, "without_slot": progress.counts.without_slot,
        })),
        "relays_with_estimate": overview.relays,
        "capacity_byte_s": overview.capacity.as_byte_per_s(),
        "last_day": {
            "conclusive": conclusive, "lower_bound": lower_bound, "failed": failed,
            "broken_off": overview.broken_off,
            "causes": causes.collect::<Vec<_>>(),
        },
        "consensus": overview.consensus.map(|consensus| json!({
            "valid_after_unix_s": consensus.valid_after_unix_s, "relays": consensus.relays, "to_be_measured": consensus.to_be_measured,
            "signers": consensus.signers,
        })),
        "bandwidth_file": overview.file.map(|file| json!({
            "created_unix_s": file.created_unix_s, "path": file.path, "lines": file.lines, "voted": file.voted,
        })),
        "gate": Published::read(&shared.options.file).gate,
    })))
}

pub(crate) async fn relays(
    State(shared): App,
    Query(wanted): Query<RelayParameters>,
) -> Result<Json<Value>, ErrorResponse> {
    let query = pages::query(&wanted);
    let page = shared.read(move |store| store.relays(&query)).await?;
    let relays: Vec<Value> = page.relays.iter().map(of_relay).collect();
    Ok(Json(json!({"found": page.found, "relays": relays})))
}

pub(crate) async fn relay(
    State(shared): App,
    Path(name): Path<String>,
) -> Result<Json<Value>, ErrorResponse> {
    let found = pages::explained(&shared, &name).await?;
    let measurements: Vec<Value> = found.measurements.iter().map(of_measurement).collect();
    Ok(Json(json!({
        "relay": of_relay(&found.relay), "explanation": found.explanation, "measurements": measurements,
    })))
}

pub(crate) async fn measurers(State(shared): App) -> Result<Json<Value>, ErrorResponse> {
    let now = shared.now();
    let rows = shared.read(move |store| store.measurers(now)).await?;
    let measurers = rows.iter().map(|row| {
        json!({
            "place": row.place, "key": row.key, "address": row.address, "capacity_byte_s": row.capacity.as_byte_per_s(),
            "state": row.state, "detail": row.detail, "since_unix_s": row.since_unix_s, "losses_of_a_week": row.losses,
        })
    });
    Ok(Json(json!({"measurers": measurers.collect::<Vec<_>>()})))
}

pub(crate) async fn periods(State(shared): App) -> Result<Json<Value>, ErrorResponse> {
    let periods = shared.read(|store| store.periods(pages::PERIODS)).await?;
    let periods = periods.iter().map(|period| {
        json!({
            "begin_unix_s": period.period.begin_unix_s, "length_s": period.period.length_s, "slot_s": period.period.slot_s,
            "measurements": period.measurements, "relays": period.relays, "failed": period.failed,
        })
    });
    Ok(Json(json!({"periods": periods.collect::<Vec<_>>()})))
}

fn of_relay(row: &RelayRow) -> Value {
    json!(RelayLine::from(row))
}

fn of_measurement(measurement: &Measurement) -> Value {
    json!({
        "id": measurement.id, "period_unix_s": measurement.period_unix_s, "turn": measurement.number,
        "slot": measurement.slot, "started_unix_s": measurement.started_unix_s,
        "ended_unix_s": measurement.ended_unix_s, "state": measurement.state.name(), "is_final": measurement.is_final,
        "mode": measurement.mode,
        "capacity_byte_s": measurement.capacity.map(Rate::as_byte_per_s), "rounds": measurement.rounds,
        "cause": measurement.cause, "reason": measurement.reason, "blame": measurement.blame,
    })
}
