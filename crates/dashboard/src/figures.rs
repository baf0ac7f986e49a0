//! Figures of a relay's history and of the seconds of a measurement.

use crate::app::App;
use crate::response::{self, ErrorResponse};
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use onion::Rate;
use report::experiment::{Axis, ExperimentFigure, Role, Series, Style};
use std::collections::BTreeSet;
use store::{Limiter, Measurement, Second, State as Ending, utc};

const DAY_S: f64 = 24.0 * 3600.0;
/// A year of daily measurements, with room for repetitions.
const MEASUREMENTS: usize = 400;

/// A relay's estimates by day.
pub(crate) async fn history(
    State(shared): App,
    Path(name): Path<String>,
) -> Result<Response, ErrorResponse> {
    let relay = response::relay(&name)?;
    let measurements = shared.read(move |store| store.measurements_of(relay, MEASUREMENTS)).await?;
    let now = shared.now();
    let days_ago = |it: &Measurement| {
        let ended = it.ended_unix_s.unwrap_or(it.started_unix_s);
        -(now.saturating_sub(ended) as f64) / DAY_S
    };
    let with = |state: Ending| -> Vec<(f64, f64)> {
        let those = measurements.iter().filter(|it| it.state == state);
        those.map(|it| (days_ago(it), mbit(it.capacity.unwrap_or_default()))).collect()
    };
    let dots = |name: &str, role, points| Series {
        name: name.to_owned(),
        points,
        labels: Vec::new(),
        style: Style::Dots,
        role,
    };
    let figure = ExperimentFigure::new(
        "history",
        "Estimates",
        Axis::new("days before now"),
        Axis::new("Mbit/s"),
    )
    .caption("All completed measurements: conclusive, a lower bound, or failed at zero.")
    .with(dots("conclusive", Role::Measurement, with(Ending::Conclusive)))
    .with(dots("lower bound", Role::Client, with(Ending::LowerBound)))
    .with(dots("failed", Role::Problem, with(Ending::Failed)));
    Ok(svg(&figure))
}

/// The seconds of a measurement, with what limited each.
pub(crate) async fn seconds(
    State(shared): App,
    Path(id): Path<String>,
) -> Result<Response, ErrorResponse> {
    let unknown = || ErrorResponse::NotFound(format!("there is no measurement {id}"));
    let number = id.parse::<i64>().map_err(|_| unknown())?;
    let found = shared.read(move |store| store.measurement(number)).await?;
    let measurement = found.ok_or_else(unknown)?;
    let seconds = &measurement.seconds;
    let when = utc(measurement.ended_unix_s.unwrap_or(measurement.started_unix_s));
    let title = format!("Second by second, ended {when}");
    let figure = ExperimentFigure::new(
        "seconds",
        &title,
        Axis::new("second, over all rounds"),
        Axis::new("Mbit/s"),
    );
    let caption = "Throughput in each second. The colour shows the limiting party.";
    let line = seconds.iter().enumerate().map(|(place, it)| (place as f64, of_second(it)));
    let mut figure = figure.caption(caption).with(Series {
        name: "total".to_owned(),
        points: line.collect(),
        labels: Vec::new(),
        style: Style::Line,
        role: Role::Muted,
    });
    let limiters: BTreeSet<Limiter> = seconds.iter().map(|it| it.limiter).collect();
    for (nth, limiter) in limiters.into_iter().enumerate() {
        let those = seconds.iter().enumerate().filter(|(_, it)| it.limiter == limiter);
        figure = figure.with(Series {
            name: limiter.in_words().to_owned(),
            points: those.map(|(place, it)| (place as f64, of_second(it))).collect(),
            labels: Vec::new(),
            style: Style::Dots,
            role: Role::Nth(nth),
        });
    }
    Ok(svg(&figure))
}

fn mbit(rate: Rate) -> f64 {
    rate.as_mbit_per_s()
}

fn of_second(second: &Second) -> f64 {
    mbit(Rate::from_byte_per_s(second.bytes))
}

fn svg(figure: &ExperimentFigure) -> Response {
    // The figure contains its own style and loads nothing.
    let headers = [
        (CONTENT_TYPE, "image/svg+xml"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (headers, figure.to_svg()).into_response()
}
