//! The report of a relay's history.

use crate::engine::{Engine, View, integers, numbers};
use crate::error::ArchiveError;
use crate::times::{DAY_S, minute};
use netdoc::RsaId;
use report::experiment::{Axis, Case, ExperimentFigure, ExperimentReport, Promise, Role, Series};

/// Makes the report of a relay.
///
/// # Errors
/// The dataset does not have the relay, or cannot be read.
pub fn report(
    engine: &Engine,
    view: View,
    relay: &RsaId,
) -> Result<ExperimentReport, ArchiveError> {
    let periods = view.periods.clone();
    engine.view(view)?;
    let rows = engine.query(&format!(
        "SELECT * FROM relay_hours WHERE relay = '{relay}' ORDER BY valid_after_unix_s"
    ))?;
    let times = integers(&rows, "valid_after_unix_s")?;
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err(ArchiveError::Missing(format!(
            "the dataset does not have the relay {relay}; check the fingerprint"
        )));
    };
    let points = |values: Vec<Option<f64>>, factor: f64| -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let mut before: Option<i64> = None;
        for (time, value) in times.iter().zip(values) {
            // The line is interrupted where the relay was not listed for more than a day.
            if before.is_some_and(|before| time - before > DAY_S) {
                points.push((*time as f64, f64::NAN));
            }
            points.push((*time as f64, value.map_or(f64::NAN, |value| value * factor)));
            before = Some(*time);
        }
        points
    };
    let column = |name: &str| numbers(&rows, name);
    let advertised = column("advertised_byte_per_s")?;
    let mut bandwidth = ExperimentFigure::new(
        "bandwidth",
        "Advertised bandwidth",
        Axis::time(),
        Axis::new("Mbit/s"),
    )
    .caption("Advertised bandwidth of the relay, and its maximum in the period before.")
    .with(Series::steps("advertised", Role::Measurement, points(advertised.clone(), 8e-6)));
    let mut cases = Vec::new();
    for (index, period) in periods.iter().enumerate() {
        let name = &period.name;
        let capacity = column(&format!("capacity_{name}_byte_per_s"))?;
        let errors = advertised
            .iter()
            .zip(&capacity)
            .filter_map(|(a, c)| a.zip(c.filter(|value| *value > 0.0)));
        let errors: Vec<f64> = errors.map(|(a, c)| 1.0 - a / c).collect();
        if !errors.is_empty() {
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let case = Case::reported(format!("mean capacity error, {name}"), "");
            let percent = (mean * 1e4).round() / 100.0;
            cases.push(case.column("percent", percent));
        }
        bandwidth = bandwidth.with(Series::steps(
            &format!("largest, {name}"),
            Role::Nth(index + 1),
            points(capacity, 8e-6),
        ));
    }
    let weights = ExperimentFigure::new(
        "weight",
        "Share of the consensus weight",
        Axis::time(),
        Axis { is_percent: true, ..Axis::new("share") },
    )
    .with(Series::steps("weight", Role::Measurement, points(column("weight_share")?, 1.0)));
    let mut figures = vec![bandwidth, weights];
    figures.retain(|figure| {
        figure.series.iter().any(|series| series.points.iter().any(|(_, y)| y.is_finite()))
    });
    Ok(ExperimentReport {
        name: format!("relay-{relay}"),
        title: format!("Relay {relay}"),
        question: "Which bandwidth did this relay advertise, and which weight did it have?".into(),
        answer: format!(
            "It was listed in {} views of the network, from {} to {}.",
            times.len(),
            minute(*first),
            minute(*last)
        ),
        promise: Promise::Nothing(String::new()),
        software_version: env!("CARGO_PKG_VERSION").into(),
        cases,
        figures,
        ..ExperimentReport::default()
    })
}
