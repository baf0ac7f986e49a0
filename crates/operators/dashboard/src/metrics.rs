//! Metrics for Prometheus, and the health check.

use crate::app::App;
use crate::pages::SILENT_S;
use crate::response::ErrorResponse;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use documents::gate::{Check, CheckVerdict, OUTCOME, Outcome};
use metrics::{FORMAT, Text};
use onion::Rate;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use store::{Falls, MeasurerRow, Overview};

/// The maximum number of fallen relays with their names: each is a series of Prometheus.
const NAMED_MAX: usize = 20;

pub(crate) async fn metrics(State(shared): App) -> Result<impl IntoResponse, ErrorResponse> {
    let now = shared.now();
    let found = shared
        .read(move |store| Ok((store.overview(now)?, store.measurers(now)?, store.falls(now)?)))
        .await?;
    let (overview, measurers, falls) = found;
    let published = Published::read(&shared.options.file);
    Ok(([(CONTENT_TYPE, FORMAT)], text(&overview, &measurers, &falls, &published)))
}

/// Whether the coordinator has reported recently.
pub(crate) async fn health(State(shared): App) -> impl IntoResponse {
    let now = shared.now();
    let progress = shared.read(|store| store.progress()).await;
    match progress {
        Ok(Some(progress)) if progress.at_unix_s.saturating_add(SILENT_S) >= now => {
            (StatusCode::OK, "ok\n".to_owned())
        }
        Ok(Some(progress)) => {
            let silent_s = now.saturating_sub(progress.at_unix_s);
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

/// The bandwidth file that tor reads, and whether the newest one may replace it.
#[derive(Default)]
pub(crate) struct Published {
    /// The time of its newest result.
    timestamp_unix_s: Option<u64>,
    /// The result of the gate for the newest file.
    pub(crate) gate: Option<Outcome>,
}

impl Published {
    /// A file that cannot be read has no values: the coordinator may not have written it yet.
    pub(crate) fn read(latest: &Path) -> Self {
        let gate = fs::read(latest.with_file_name(OUTCOME)).ok();
        let gate = gate.and_then(|text| serde_json::from_slice(&text).ok());
        Self { timestamp_unix_s: timestamp(latest), gate }
    }
}

/// The first line of a bandwidth file.
fn timestamp(file: &Path) -> Option<u64> {
    // As long as a number of 64 bits with its newline.
    let mut first = Vec::new();
    File::open(file).ok()?.take(21).read_to_end(&mut first).ok()?;
    let end = first.iter().position(|byte| *byte == b'\n')?;
    std::str::from_utf8(&first[..end]).ok()?.parse().ok()
}

/// Adds the metrics of a gate. Without a result they are only declared.
pub fn gate_metrics(text: &mut Text, outcome: Option<&Outcome>) {
    let help = "Whether the bandwidth file passes the gate.";
    text.gauge("flashflow_gate_passed", help, outcome.map(|outcome| u64::from(outcome.passed)));
    let help = "When it was checked, in Unix seconds.";
    text.gauge(
        "flashflow_gate_checked_seconds",
        help,
        outcome.map(|outcome| outcome.checked_unix_s),
    );
    let checks: Vec<&Check> = outcome.into_iter().flat_map(|outcome| &outcome.checks).collect();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Check) -> Option<f64>| {
        text.head(name, "gauge", help);
        for check in &checks {
            let place = check.place.as_deref().map(|place| ("place", place));
            let labels: Vec<(&str, &str)> =
                [Some(("check", check.check.word())), place].into_iter().flatten().collect();
            if let Some(value) = value(check) {
                text.value(name, &labels, value);
            }
        }
    };
    let help = "Whether a check failed, if it was made.";
    gauge("flashflow_gate_check_failed", help, &|check| {
        let has_failed = f64::from(u8::from(check.verdict == CheckVerdict::Fail));
        check.figure.map(|_| has_failed)
    });
    let help = "The figure of a check, if it was made.";
    gauge("flashflow_gate_figure", help, &|check| check.figure);
    gauge("flashflow_gate_limit", "The limit of a check.", &|check| Some(check.limit));
}

/// Each metric is declared, even if there is no value yet.
fn text(
    overview: &Overview,
    measurers: &[MeasurerRow],
    falls: &Falls,
    published: &Published,
) -> String {
    let mut text = Text::default();
    let mut gauge = |name: &str, help: &str, values: &[(&[(&str, &str)], u64)]| {
        let name = format!("flashflow_coordinator_{name}");
        text.head(&name, "gauge", help);
        for (labels, value) in values {
            text.value(&name, labels, value);
        }
    };
    let plain = |value: Option<u64>| -> Vec<(&[(&str, &str)], u64)> {
        value.into_iter().map(|value| (&[][..], value)).collect()
    };
    let progress = overview.progress.as_ref();
    let relays: Vec<(&[_], u64)> = progress.map_or_else(Vec::new, |progress| {
        vec![
            (&[("state", "waiting")][..], progress.counts.waiting as u64),
            (&[("state", "running")][..], progress.counts.running as u64),
            (&[("state", "done")][..], progress.counts.done as u64),
            (&[("state", "without_slot")][..], progress.counts.without_slot as u64),
        ]
    });
    gauge("relays", "Relays of the period, by state.", &relays);
    let help = "When the coordinator last reported, in Unix seconds.";
    gauge("reported_seconds", help, &plain(progress.map(|progress| progress.at_unix_s)));
    let help = "Relays with an estimate from the last 30 days.";
    gauge("estimates", help, &plain(Some(overview.relays)));
    let capacity = plain(Some(overview.capacity.as_byte_per_s()));
    gauge("capacity_bytes_per_second", "The sum of those estimates.", &capacity);
    let help = "Relays with an estimate of the last 24 hours and one of the week before.";
    gauge("compared_relays", help, &plain(Some(falls.compared)));
    let help = "Those of them whose last estimate is more than a third below the largest of the week before.";
    gauge("fallen_relays", help, &plain(Some(falls.fallen.len() as u64)));
    let named: Vec<_> = falls
        .fallen
        .iter()
        .take(NAMED_MAX)
        .map(|fall| (fall.relay.to_string(), fall.nickname.as_str(), fall.last, fall.recent))
        .collect();
    let labels: Vec<_> = named
        .iter()
        .map(|(id, nickname, ..)| [("fingerprint", id.as_str()), ("nickname", *nickname)])
        .collect();
    let of = |rate: fn(&(String, &str, Rate, Rate)) -> Rate| -> Vec<(&[(&str, &str)], u64)> {
        let rates = named.iter().map(|relay| rate(relay).as_byte_per_s());
        labels.iter().map(|label| &label[..]).zip(rates).collect()
    };
    let help = "Last estimate of a fallen relay, for those that lost most.";
    gauge("fallen_relay_bytes_per_second", help, &of(|relay| relay.2));
    let help = "Largest estimate of such a relay in the week before.";
    gauge("fallen_relay_recent_bytes_per_second", help, &of(|relay| relay.3));
    let [conclusive, lower_bound, failed] = overview.endings;
    let endings: [(&[_], u64); 4] = [
        (&[("state", "conclusive")][..], conclusive),
        (&[("state", "lower_bound")][..], lower_bound),
        (&[("state", "failed")][..], failed),
        (&[("state", "broken_off")][..], overview.broken_off),
    ];
    gauge(
        "measurements_of_a_day",
        "Final results of the last 24 hours, by outcome, and interrupted measurements.",
        &endings,
    );
    let causes: Vec<_> = overview
        .causes
        .iter()
        .map(|cause| ([("cause", cause.name.as_str())], cause.count))
        .collect();
    let causes: Vec<_> = causes.iter().map(|(labels, count)| (&labels[..], *count)).collect();
    let help = "Causes of the inconclusive ones among the final results of the last 24 hours.";
    gauge("causes_of_a_day", help, &causes);
    let value = plain(overview.consensus.as_ref().map(|consensus| consensus.valid_after_unix_s));
    gauge("consensus_valid_after_seconds", "The newest consensus, in Unix seconds.", &value);
    let file = overview.file.as_ref();
    let help = "When the newest bandwidth file was created, in Unix seconds.";
    gauge("bandwidth_file_created_seconds", help, &plain(file.map(|file| file.created_unix_s)));
    let help = "Its relays that authorities use in their votes.";
    gauge("bandwidth_file_voted", help, &plain(file.map(|file| file.voted)));
    let help = "Time of the newest result in the bandwidth file that tor reads, in Unix seconds.";
    gauge("latest_file_timestamp_seconds", help, &plain(published.timestamp_unix_s));
    let labels: Vec<_> =
        measurers.iter().map(|measurer| [("measurer", measurer.address.as_str())]).collect();
    let labelled = || labels.iter().map(|label| &label[..]).zip(measurers);
    let up: Vec<_> = labelled().map(|(label, row)| (label, u64::from(row.state == "up"))).collect();
    gauge("measurer_up", "Whether a measurer responds.", &up);
    let capacities: Vec<_> =
        labelled().map(|(label, row)| (label, row.capacity.as_byte_per_s())).collect();
    gauge("measurer_capacity_bytes_per_second", "Capacity of a measurer.", &capacities);
    gate_metrics(&mut text, published.gate.as_ref());
    text.into_string()
}
