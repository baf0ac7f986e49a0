//! Figures: capacity and weights of the network, a relay's history, the seconds of a measurement, a measurer's paths. Pages contain them;
//! each is a file as well.

use crate::app::App;
use crate::response::{self, ErrorResponse};
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use onion::Rate;
use report::experiment::{Axis, ExperimentFigure, Role, Series};
use std::collections::BTreeSet;
use store::{Limiter, Measurement, PathRow, Reader, Second, State as Ending, Total, Weighed, utc};

/// Measurements of a relay that are shown and explained: a year of daily ones, with room for repetitions.
pub(crate) const MEASUREMENTS: usize = 400;
/// Days of the history of the network.
const HISTORY_DAYS: u64 = 365;

/// A figure in a page, with the address of its file.
pub(crate) fn in_page(figure: &ExperimentFigure, file: &str) -> String {
    // The captions below are constants without markup.
    format!(
        "<figure>{}<figcaption>{} <a href=\"{file}\">SVG</a></figcaption></figure>",
        figure.to_html(),
        figure.caption
    )
}

pub(crate) async fn history_file(
    State(shared): App,
    Path(name): Path<String>,
) -> Result<Response, ErrorResponse> {
    let relay = response::relay(&name)?;
    let measurements = shared.read(move |store| store.measurements_of(relay, MEASUREMENTS)).await?;
    Ok(svg(&history(&measurements)))
}

/// A relay's estimates by day.
pub(crate) fn history(measurements: &[Measurement]) -> ExperimentFigure {
    let with = |state: Ending| -> Vec<(f64, f64)> {
        let those = measurements.iter().filter(|measurement| measurement.state == state);
        those
            .map(|measurement| {
                let ended = measurement.ended_unix_s.unwrap_or(measurement.started_unix_s);
                (seconds_of(ended), mbit(measurement.capacity.unwrap_or_default()))
            })
            .collect()
    };
    ExperimentFigure::new("history", "Estimates", Axis::time(), Axis::new("Mbit/s"))
        .caption("All completed measurements: conclusive, a lower bound, or failed at zero.")
        .with(Series::dots("conclusive", Role::Measurement, with(Ending::Conclusive)))
        .with(Series::dots("lower bound", Role::Client, with(Ending::LowerBound)))
        .with(Series::dots("failed", Role::Problem, with(Ending::Failed)))
}

pub(crate) async fn seconds_file(
    State(shared): App,
    Path(id): Path<String>,
) -> Result<Response, ErrorResponse> {
    let unknown = || ErrorResponse::NotFound(format!("there is no measurement {id}"));
    let number = id.parse::<i64>().map_err(|_| unknown())?;
    let found = shared.read(move |store| store.measurement(number)).await?;
    Ok(svg(&seconds(&found.ok_or_else(unknown)?)))
}

/// The seconds of a measurement, with what limited each.
pub(crate) fn seconds(measurement: &Measurement) -> ExperimentFigure {
    let seconds = || (1_u32..).map(f64::from).zip(&measurement.seconds);
    let points = |is_shown: &dyn Fn(&Second) -> bool| -> Vec<(f64, f64)> {
        let shown = seconds().filter(|(_, second)| is_shown(second));
        shown.map(|(place, second)| (place, of_second(second))).collect()
    };
    let when = utc(measurement.ended_unix_s.unwrap_or(measurement.started_unix_s));
    let title = format!("Second by second, ended {when}");
    let x = Axis::new("second, over all rounds");
    let figure = ExperimentFigure::new("seconds", &title, x, Axis::new("Mbit/s"))
        .caption("Throughput in each second. The colour shows the limiting party.")
        .with(Series::line("total", Role::Muted, points(&|_| true)));
    let limiters: BTreeSet<Limiter> =
        measurement.seconds.iter().map(|second| second.limiter).collect();
    limiters.into_iter().enumerate().fold(figure, |figure, (nth, limiter)| {
        let points = points(&|second| second.limiter == limiter);
        figure.with(Series::dots(limiter.in_words(), Role::Nth(nth), points))
    })
}

pub(crate) async fn totals_file(State(shared): App) -> Result<Response, ErrorResponse> {
    let now = shared.now();
    Ok(svg(&totals(&shared.read(move |store| read_totals(store, now)).await?)))
}

/// Capacities and weights of the last year.
pub(crate) fn read_totals(store: &Reader, now: u64) -> Result<[Vec<Total>; 2], store::StoreError> {
    store.totals(now.saturating_sub(HISTORY_DAYS * 24 * 3600))
}

/// The capacity measured and the consensus weight of the whole network, over time.
pub(crate) fn totals([capacities, weights]: &[Vec<Total>; 2]) -> ExperimentFigure {
    let sums = capacities.iter().chain(weights).map(|total| mbit(total.sum));
    let (unit, factor) =
        if sums.fold(0.0, f64::max) < 10_000.0 { ("Mbit/s", 1.0) } else { ("Gbit/s", 1e-3) };
    let points = |totals: &[Total]| -> Vec<(f64, f64)> {
        totals.iter().map(|total| (seconds_of(total.at_unix_s), mbit(total.sum) * factor)).collect()
    };
    ExperimentFigure::new("totals", "The network", Axis::time(), Axis::new(unit))
        .caption(
            "The sum of all capacities in the bandwidth files, and of all weights in the consensus.",
        )
        .with(Series::line("capacity measured", Role::Measurement, points(capacities)))
        .with(Series::line("consensus weight", Role::Client, points(weights)))
}

pub(crate) async fn weights_file(State(shared): App) -> Result<Response, ErrorResponse> {
    Ok(svg(&weights(&shared.read(|store| store.weighed()).await?)))
}

/// Estimates against consensus weights.
pub(crate) fn weights(relays: &[Weighed]) -> ExperimentFigure {
    let [capacity, weight] = [|relay: &Weighed| relay.capacity, |relay: &Weighed| relay.weight]
        .map(|of| relays.iter().map(of).map(mbit).sum::<f64>());
    let with = |is_bound: bool| -> Vec<(f64, f64)> {
        let those = relays.iter().filter(|relay| (relay.is_conclusive == Some(false)) == is_bound);
        those.map(|relay| (mbit(relay.capacity), mbit(relay.weight))).collect()
    };
    let figure = ExperimentFigure::new(
        "weights",
        "Estimates and weights",
        Axis::new("estimate, Mbit/s").log(),
        Axis::new("consensus weight, Mbit/s").log(),
    )
    .caption("On the line, a relay's share of the weight is its share of the capacity.")
    .with(Series::dots("estimate", Role::Measurement, with(false)))
    .with(Series::dots("lower bound", Role::Client, with(true)));
    let rates = || relays.iter().map(|relay| mbit(relay.capacity));
    if capacity > 0.0 {
        let ends = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
        let points = ends.map(|rate| (rate, rate * weight / capacity)).to_vec();
        figure.with(Series::line("equal shares", Role::Truth, points))
    } else {
        figure
    }
}

pub(crate) async fn paths_file(
    State(shared): App,
    Path(key): Path<String>,
) -> Result<Response, ErrorResponse> {
    Ok(svg(&paths(&shared.read(move |store| store.paths_of(&key)).await?)))
}

/// A measurer's paths: round trips and losses.
pub(crate) fn paths(rows: &[PathRow]) -> ExperimentFigure {
    let with = |is_held_back: bool| -> Vec<(f64, f64)> {
        let those = rows.iter().filter(|row| row.path.limit.is_some() == is_held_back);
        those.filter_map(of_path).collect()
    };
    let [x, y] = ["round trip, ms", "retransmitted, %"].map(Axis::new);
    ExperimentFigure::new("paths", "Paths", x, y)
        .caption("Each dot is the path to a relay, when it was last measured.")
        .with(Series::dots("not held back", Role::Measurement, with(false)))
        .with(Series::dots("held back by the path", Role::Problem, with(true)))
}

fn of_path(row: &PathRow) -> Option<(f64, f64)> {
    let rtt_ms = row.path.rtt?.as_secs_f64() * 1000.0;
    Some((rtt_ms, f64::from(row.path.loss_ppm.unwrap_or_default()) / 10_000.0))
}

fn mbit(rate: Rate) -> f64 {
    rate.as_mbit_per_s()
}

fn seconds_of(unix_s: u64) -> f64 {
    unix_s as f64
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
