//! The report of errors: figures 1, 2, 3, 4, 10a and 10b, and the table.

use super::{Errors, PeriodErrors, lines};
use crate::times::minute;
use report::experiment::{
    Axis, Case, ExperimentFigure, ExperimentReport, Promise, Role, Series, cumulative,
};

/// Maximum number of points of a line: more are indistinguishable at the figure's size.
const POINTS_MAX: usize = 800;

/// The report.
#[must_use]
pub fn report(errors: &Errors, origin: &str) -> ExperimentReport {
    let share = |label: &str| Axis { is_percent: true, ..Axis::new(label) };
    let distribution =
        |name: &str, title: &str, axis: Axis, values: fn(&PeriodErrors) -> Vec<f64>| {
            let y = share("share of relays").showing(0.0, 1.0);
            let mut figure = ExperimentFigure::new(name, title, axis, y);
            for (index, period) in errors.periods.iter().enumerate() {
                let points = thinned(cumulative(&values(period)));
                figure = figure.with(Series::steps(&period.period.name, Role::Nth(index), points));
            }
            figure
        };
    let over_time = |name: &str,
                     title: &str,
                     label: &str,
                     value: fn(&super::NetworkHour) -> Option<f64>| {
        let mut figure = ExperimentFigure::new(name, title, Axis::time(), share(label));
        for (index, period) in errors.periods.iter().enumerate() {
            let points =
                period.network.iter().filter_map(|hour| Some((hour.unix_s as f64, value(hour)?)));
            figure = figure.with(Series::line(
                &period.period.name,
                Role::Nth(index),
                medians(points.collect()),
            ));
        }
        figure
    };
    let figures = vec![
        distribution("figure-1", "Relay capacity error", share("mean error (RCE)").showing(0.0, 1.0), |period| {
            period.capacity_errors.clone()
        })
        .caption("Distribution over relays of the mean share by which the advertised bandwidth is below its maximum in the period before."),
        over_time("figure-2", "Network capacity error", "error (NCE)", |hour| hour.capacity_error)
            .caption("Share of the network's capacity that advertised bandwidths miss. Points are medians of neighbouring hours."),
        distribution("figure-3", "Relay weight error", Axis::new("log10 of the mean weight over capacity (RWE)").showing(-2.0, 2.0), |period| {
            period.weight_errors.iter().filter(|weight_error| **weight_error > 0.0).map(|weight_error| libm::log10(*weight_error)).collect()
        })
        .caption("Below 0, the weight is too small for the capacity. Relays whose weight is always 0 are left out."),
        over_time("figure-4", "Network weight error", "error (NWE)", |hour| hour.weight_error)
            .caption("Share of the weight that would have to move to other relays."),
        distribution("figure-10a", "Variation of advertised bandwidths", share("mean relative standard deviation").showing(0.0, 2.0), |period| {
            period.advertised_rsds.clone()
        }),
        distribution("figure-10b", "Variation of weights", share("mean relative standard deviation").showing(0.0, 2.0), |period| {
            period.weight_rsds.clone()
        }),
    ];
    // A dataset without weights has no figures about weights.
    let figures = figures
        .into_iter()
        .filter(|figure| figure.series.iter().any(|series| !series.points.is_empty()))
        .collect();
    let (first, last) = errors.span_unix_s;
    let answer = errors.periods.iter().filter_map(|period| {
        let median = crate::percentile(&period.capacity_errors, 0.5)?;
        Some(format!("{:.1} % ({})", median * 100.0, period.period.name))
    });
    ExperimentReport {
        name: "archive-errors".into(),
        title: "Errors of Tor's capacities and weights".into(),
        question: "How far are advertised bandwidths below capacities, and how far do weights deviate from capacities?".into(),
        answer: format!("The median relay is underestimated by {}.", answer.collect::<Vec<_>>().join(", ")),
        promise: Promise::Nothing(
            "The paper's values are for 2009 to 2019 and all of Tor's archives.".into(),
        ),
        software_version: env!("CARGO_PKG_VERSION").into(),
        parameters: vec![
            ("views of the network".into(), format!("{} to {}", minute(first), minute(last))),
            ("origin".into(), origin.into()),
            ("relays".into(), errors.relays.to_string()),
            ("relay hours".into(), errors.rows.to_string()),
        ],
        cases: cases(errors),
        figures,
        notes: errors
            .periods
            .iter()
            .map(|period| format!("{}: errors count from {} on.", period.period.name, minute(period.from_unix_s)))
            .collect(),
        ..ExperimentReport::default()
    }
}

fn cases(errors: &Errors) -> Vec<Case> {
    let lines = lines(errors);
    let lines = lines.into_iter().filter(|line| line.here_percent.is_some());
    lines
        .map(|line| {
            let name = format!(
                "figure {}: {}, {}, {}",
                line.figure, line.quantity, line.period, line.statistic
            );
            Case::reported(name, "")
                .column("here_percent", rounded(line.here_percent))
                .column("paper_percent", rounded(line.paper_percent))
        })
        .collect()
}

/// Rounds to a hundredth, because the last digits depend on the number of threads.
fn rounded(value: Option<f64>) -> serde_json::Value {
    value.map_or(serde_json::Value::Null, |value| ((value * 100.0).round() / 100.0).into())
}

/// Every nth point, and the last.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % step == 0 || *index == last)
        .map(|(_, point)| point)
        .collect()
}

/// Medians of neighbouring points.
fn medians(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let median = |chunk: &[(f64, f64)]| {
        let mut values: Vec<f64> = chunk.iter().map(|point| point.1).collect();
        values.sort_by(f64::total_cmp);
        (chunk[chunk.len() / 2].0, values[values.len() / 2])
    };
    points.chunks(step).map(median).collect()
}
