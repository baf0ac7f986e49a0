//! Metrics for Prometheus, and the health check.

use crate::app::App;
use crate::pages::SILENT_S;
use crate::response::ErrorResponse;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use std::fmt::Write as _;
use store::{MeasurerRow, Overview};

/// The text format of Prometheus.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn metrics(State(shared): App) -> Result<impl IntoResponse, ErrorResponse> {
    let now = shared.now();
    let found = shared.read(move |store| Ok((store.overview(now)?, store.measurers(now)?))).await?;
    let (overview, measurers) = found;
    Ok(([(CONTENT_TYPE, FORMAT)], text(&overview, &measurers)))
}

/// Whether the coordinator has reported recently.
pub(crate) async fn health(State(shared): App) -> impl IntoResponse {
    let now = shared.now();
    let progress = shared.read(|store| store.progress()).await;
    match progress {
        Ok(Some(it)) if it.at_unix_s.saturating_add(SILENT_S) >= now => {
            (StatusCode::OK, "ok\n".to_owned())
        }
        Ok(Some(it)) => {
            let silent_s = now.saturating_sub(it.at_unix_s);
            let problem = format!("the coordinator has not reported for {silent_s} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, problem)
        }
        Ok(None) => {
            let problem = "no coordinator with a schedule has written to the store yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, problem.to_owned())
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read\n".to_owned()),
    }
}

fn text(overview: &Overview, measurers: &[MeasurerRow]) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, u64)]| {
        let name = format!("flashflow_coordinator_{name}");
        let _cannot_fail = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _cannot_fail = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: u64| vec![(String::new(), value)];
    let label = |name: &str, value: &str| format!("{{{name}=\"{}\"}}", escaped(value));
    if let Some(progress) = &overview.progress {
        let counts = progress.counts;
        let relays = [
            ("waiting", counts.waiting),
            ("running", counts.running),
            ("done", counts.done),
            ("without_slot", counts.without_slot),
        ];
        let relays = relays.map(|(state, count)| (label("state", state), count as u64));
        gauge("relays", "Relays of the period, by state.", &relays);
        gauge(
            "reported_seconds",
            "When the coordinator last reported, in Unix seconds.",
            &plain(progress.at_unix_s),
        );
    }
    gauge("estimates", "Relays with an estimate from the last 30 days.", &plain(overview.relays));
    let capacity = plain(overview.capacity.as_byte_per_s());
    gauge("capacity_bytes_per_second", "The sum of those estimates.", &capacity);
    let [conclusive, lower_bound, failed] = overview.endings;
    let endings = [
        ("conclusive", conclusive),
        ("lower_bound", lower_bound),
        ("failed", failed),
        ("broken_off", overview.broken_off),
    ];
    let endings = endings.map(|(state, count)| (label("state", state), count));
    gauge("measurements_of_a_day", "Measurements of the last 24 hours, by outcome.", &endings);
    let causes = overview.causes.iter().map(|it| (label("cause", &it.name), it.count));
    let help = "Causes of inconclusive measurements in the last 24 hours.";
    gauge("causes_of_a_day", help, &causes.collect::<Vec<_>>());
    if let Some(consensus) = &overview.consensus {
        let value = plain(consensus.valid_after_unix_s);
        gauge("consensus_valid_after_seconds", "The newest consensus, in Unix seconds.", &value);
    }
    if let Some(file) = &overview.file {
        let help = "When the newest bandwidth file was created, in Unix seconds.";
        gauge("bandwidth_file_created_seconds", help, &plain(file.created_unix_s));
        gauge(
            "bandwidth_file_voted",
            "Its relays that authorities use in their votes.",
            &plain(file.voted),
        );
    }
    let up =
        measurers.iter().map(|it| (label("measurer", &it.address), u64::from(it.state == "up")));
    gauge("measurer_up", "Whether a measurer responds.", &up.collect::<Vec<_>>());
    let capacities =
        measurers.iter().map(|it| (label("measurer", &it.address), it.capacity.as_byte_per_s()));
    let help = "Capacity of a measurer.";
    gauge("measurer_capacity_bytes_per_second", help, &capacities.collect::<Vec<_>>());
    text
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
