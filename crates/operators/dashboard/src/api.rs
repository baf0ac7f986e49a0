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
    let it = shared.read(move |store| store.overview(now)).await?;
    let [conclusive, lower_bound, failed] = it.endings;
    let causes = it.causes.iter().map(|cause| {
        json!({"name": cause.name, "blame": cause.blame, "count": cause.count, "example": cause.example})
    });
    Ok(Json(json!({
        "now_unix_s": now,
        "progress": it.progress.map(|it| json!({
            "at_unix_s": it.at_unix_s, "period_unix_s": it.period_unix_s, "waiting": it.counts.waiting,
            "running": it.counts.running, "done": it.counts.done, "without_slot": it.counts.without_slot,
        })),
        "relays_with_estimate": it.relays,
        "capacity_byte_s": it.capacity.as_byte_per_s(),
        "last_day": {
            "conclusive": conclusive, "lower_bound": lower_bound, "failed": failed, "broken_off": it.broken_off,
            "causes": causes.collect::<Vec<_>>(),
        },
        "consensus": it.consensus.map(|it| json!({
            "valid_after_unix_s": it.valid_after_unix_s, "relays": it.relays, "to_be_measured": it.to_be_measured,
            "signers": it.signers,
        })),
        "bandwidth_file": it.file.map(|it| json!({
            "created_unix_s": it.created_unix_s, "path": it.path, "lines": it.lines, "voted": it.voted,
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
    let measurers = rows.iter().map(|it| {
        json!({
            "place": it.place, "key": it.key, "address": it.address, "capacity_byte_s": it.capacity.as_byte_per_s(),
            "state": it.state, "detail": it.detail, "since_unix_s": it.since_unix_s, "losses_of_a_week": it.losses,
        })
    });
    Ok(Json(json!({"measurers": measurers.collect::<Vec<_>>()})))
}

pub(crate) async fn periods(State(shared): App) -> Result<Json<Value>, ErrorResponse> {
    let periods = shared.read(|store| store.periods(pages::PERIODS)).await?;
    let periods = periods.iter().map(|it| {
        json!({
            "begin_unix_s": it.period.begin_unix_s, "length_s": it.period.length_s, "slot_s": it.period.slot_s,
            "measurements": it.measurements, "relays": it.relays, "failed": it.failed,
        })
    });
    Ok(Json(json!({"periods": periods.collect::<Vec<_>>()})))
}

fn of_relay(it: &RelayRow) -> Value {
    json!(RelayLine::from(it))
}

fn of_measurement(it: &Measurement) -> Value {
    json!({
        "id": it.id, "period_unix_s": it.period_unix_s, "turn": it.number, "slot": it.slot,
        "started_unix_s": it.started_unix_s, "ended_unix_s": it.ended_unix_s, "state": it.state.name(), "is_final": it.is_final,
        "mode": it.mode,
        "capacity_byte_s": it.capacity.map(Rate::as_byte_per_s), "rounds": it.rounds, "cause": it.cause,
        "reason": it.reason, "blame": it.blame,
    })
}
