//! The results of a series, compared with those of the paper.

use super::ScheduleSeries;
use crate::percentile;
use crate::times::minute;
use report::experiment::{Axis, Case, ExperimentFigure, ExperimentReport, Promise, Role, Series};
use schemars::JsonSchema;
use serde::Serialize;

/// A quantity over a series.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Name of the quantity, with its unit.
    pub quantity: &'static str,
    /// Minimum, median and maximum.
    pub here: [f64; 3],
    /// Minimum, median and maximum in the paper, for July 2019.
    pub paper: [Option<f64>; 3],
}

/// The table of quantities. Quantities without any value are left out.
#[must_use]
pub fn lines(series: &ScheduleSeries) -> Vec<Line> {
    let days = |value: fn(&super::PlannedNetwork) -> f64| series.days.iter().map(value).collect();
    let views = |value: fn(&super::Arrivals) -> f64| series.arrivals.iter().map(value).collect();
    let all = |paper: [f64; 3]| paper.map(Some);
    type Entry = (&'static str, Vec<f64>, [Option<f64>; 3]);
    let entries: [Entry; 9] = [
        ("relays of a day", days(|day| day.relays as f64), all([6355.0, 6419.0, 6528.0])),
        ("capacity, Gbit/s", days(|day| day.capacity_gbit_per_s), all([592.0, 608.0, 621.0])),
        ("largest capacity, Mbit/s", days(|day| day.largest_mbit_per_s), [None, None, Some(998.0)]),
        ("slots to measure all", days(|day| day.slots.into()), [None, Some(599.0), None]),
        ("hours to measure all", days(|day| day.hours), all([4.9, 5.0, 5.1])),
        ("new relays of a view", views(|arrival| arrival.new_relays as f64), all([0.0, 3.0, 98.0])),
        (
            "seconds until all new ones are measured",
            views(|arrival| arrival.measured_after_s.into()),
            all([0.0, 30.0, 780.0]),
        ),
        (
            "seconds until all new ones are measured, daemon's plan",
            views(|arrival| arrival.measured_by_daemon_after_s.into()),
            [None; 3],
        ),
        (
            "seconds until a new relay is measured",
            series.waits_s.iter().map(|wait_s| f64::from(*wait_s)).collect(),
            [None; 3],
        ),
    ];
    entries
        .into_iter()
        .filter(|entry| !entry.1.is_empty())
        .map(|(quantity, mut values, paper)| {
            values.sort_by(f64::total_cmp);
            let here = [0.0, 0.5, 1.0].map(|share| percentile(&values, share).unwrap_or_default());
            Line { quantity, here, paper }
        })
        .collect()
}

/// The report: the table of quantities, and figures over time.
#[must_use]
pub fn report(series: &ScheduleSeries) -> ExperimentReport {
    let lines = lines(series);
    let figure = |name: &str, title: &str, label: &str, points: Vec<(f64, f64)>| {
        ExperimentFigure::new(name, title, Axis::time(), Axis::new(label)).with(Series::line(
            "",
            Role::Nth(0),
            points,
        ))
    };
    let days = |value: fn(&super::PlannedNetwork) -> f64| {
        series.days.iter().map(|day| (day.unix_s as f64, value(day))).collect()
    };
    let new: Vec<(f64, f64)> = series
        .arrivals
        .iter()
        .filter(|arrival| arrival.new_relays > 0)
        .map(|day| (day.unix_s as f64, f64::from(day.measured_after_s) / 60.0))
        .collect();
    let mut figures = vec![
        figure("hours", "Time to measure all relays", "hours", days(|day| day.hours)),
        figure(
            "capacity",
            "Capacity of the network",
            "Gbit/s",
            days(|day| day.capacity_gbit_per_s),
        ),
    ];
    if !new.is_empty() {
        figures.push(figure(
            "waits",
            "Time until all new relays of a view are measured",
            "minutes",
            new,
        ));
    }
    let number =
        |value: f64| if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") };
    let cases = lines.iter().map(|line| {
        let names = ["minimum", "median", "maximum"].iter().zip(line.here).zip(line.paper);
        let case = Case::reported(line.quantity, "");
        names.fold(case, |case, ((name, here), paper)| {
            let paper = paper.map_or_else(|| "–".to_owned(), number);
            case.column(name, number(here)).column(&format!("{name}, paper"), paper)
        })
    });
    let median = |quantity: &str| {
        let line = lines.iter().find(|line| line.quantity == quantity);
        line.map_or_else(|| "no".to_owned(), |line| number(line.here[1]))
    };
    ExperimentReport {
        name: "archive-schedule".into(),
        title: "How long a team needs to measure the network".into(),
        question: "In how many slots can all relays be measured, and how long do new relays wait?"
            .into(),
        answer: format!(
            "On the median day {} slots ({} hours) are enough for {} relays.",
            median("slots to measure all"),
            median("hours to measure all"),
            median("relays of a day"),
        ),
        promise: Promise::Nothing("The paper's values are for July 2019.".into()),
        software_version: env!("CARGO_PKG_VERSION").into(),
        parameters: [("first day", series.days.first()), ("last day", series.days.last())]
            .into_iter()
            .filter_map(|(name, day)| Some((name.to_owned(), minute(day?.unix_s))))
            .collect(),
        cases: cases.collect(),
        figures,
        ..ExperimentReport::default()
    }
}
