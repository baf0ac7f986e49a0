//! Figures: capacity and weights of the network, a relay's history, the seconds of a measurement, a measurer's paths.

use crate::app::App;
use crate::response::{self, ErrorResponse};
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use onion::Rate;
use report::experiment::{Axis, ExperimentFigure, Role, Series, Style};
use std::collections::BTreeSet;
use store::{Limiter, Measurement, PathRow, Second, State as Ending, Total, Weighed, utc};

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
    let figure = ExperimentFigure::new(
        "history",
        "Estimates",
        Axis::new("days before now"),
        Axis::new("Mbit/s"),
    )
    .caption("All completed measurements: conclusive, a lower bound, or failed at zero.")
    .with(Series::dots("conclusive", Role::Measurement, with(Ending::Conclusive)))
    .with(Series::dots("lower bound", Role::Client, with(Ending::LowerBound)))
    .with(Series::dots("failed", Role::Problem, with(Ending::Failed)));
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

/// Days of the history of the network.
const HISTORY_DAYS: u64 = 365;

/// The capacity measured and the consensus weight of the whole network, over time.
pub(crate) async fn totals(State(shared): App) -> Result<Response, ErrorResponse> {
    let now = shared.now();
    let since = now.saturating_sub(HISTORY_DAYS * 24 * 3600);
    let [capacities, weights] = shared.read(move |store| store.totals(since)).await?;
    let points = |totals: &[Total]| -> Vec<(f64, f64)> {
        let days_ago = |it: &Total| -(now.saturating_sub(it.at_unix_s) as f64) / DAY_S;
        totals.iter().map(|it| (days_ago(it), mbit(it.sum) / 1000.0)).collect()
    };
    let figure = ExperimentFigure::new(
        "totals",
        "The network",
        Axis::new("days before now"),
        Axis::new("Gbit/s"),
    )
    .caption(
        "The sum of all capacities in the bandwidth files, and of all weights in the consensus.",
    )
    .with(Series::line("capacity measured", Role::Measurement, points(&capacities)))
    .with(Series::line("consensus weight", Role::Client, points(&weights)));
    Ok(svg(&figure))
}

/// Estimates against consensus weights.
pub(crate) async fn weights(State(shared): App) -> Result<Response, ErrorResponse> {
    let relays = shared.read(|store| store.weighed()).await?;
    let [capacity, weight] = [|it: &Weighed| it.capacity, |it: &Weighed| it.weight]
        .map(|of| relays.iter().map(of).map(mbit).sum::<f64>());
    let with = |is_bound: bool| -> Vec<(f64, f64)> {
        let those = relays.iter().filter(|it| (it.is_conclusive == Some(false)) == is_bound);
        those.map(|it| (mbit(it.capacity), mbit(it.weight))).collect()
    };
    let mut figure = ExperimentFigure::new(
        "weights",
        "Estimates and weights",
        Axis::new("estimate, Mbit/s").log(),
        Axis::new("consensus weight, Mbit/s").log(),
    )
    .caption("On the line, a relay's share of the weight is its share of the capacity.")
    .with(Series::dots("estimate", Role::Measurement, with(false)))
    .with(Series::dots("lower bound", Role::Client, with(true)));
    let rates = || relays.iter().map(|it| mbit(it.capacity));
    if capacity > 0.0 {
        let ends = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
        let points = ends.map(|it| (it, it * weight / capacity)).to_vec();
        figure = figure.with(Series::line("equal shares", Role::Truth, points));
    }
    Ok(svg(&figure))
}

/// A measurer's paths: round trips and losses.
pub(crate) async fn paths(
    State(shared): App,
    Path(key): Path<String>,
) -> Result<Response, ErrorResponse> {
    let rows = shared.read(move |store| store.paths_of(&key)).await?;
    let with = |is_held_back: bool| -> Vec<(f64, f64)> {
        let those = rows.iter().filter(|it| it.path.limit.is_some() == is_held_back);
        those.filter_map(of_path).collect()
    };
    let figure = ExperimentFigure::new(
        "paths",
        "Paths",
        Axis::new("round trip, ms"),
        Axis::new("retransmitted, %"),
    )
    .caption("Each dot is the path to a relay, when it was last measured.")
    .with(Series::dots("not held back", Role::Measurement, with(false)))
    .with(Series::dots("held back by the path", Role::Problem, with(true)));
    Ok(svg(&figure))
}

fn of_path(row: &PathRow) -> Option<(f64, f64)> {
    let rtt_ms = row.path.rtt?.as_secs_f64() * 1000.0;
    Some((rtt_ms, f64::from(row.path.loss_ppm.unwrap_or_default()) / 10_000.0))
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
