//! Compares the results of a dataset with those of the paper.

use super::{Errors, PeriodErrors};
use crate::percentile;
use schemars::JsonSchema;
use serde::Serialize;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// The figure in the paper.
    pub figure: &'static str,
    /// The quantity.
    pub quantity: &'static str,
    /// The name of the period.
    pub period: String,
    /// `median`, `75th percentile` and so on.
    pub statistic: &'static str,
    /// The value in the dataset, in percent; `None` if the dataset has no such data.
    pub here_percent: Option<f64>,
    /// The value in the paper (2009 to 2019), in percent.
    pub paper_percent: Option<f64>,
}

/// A distribution of the table: figure, name, its values, and the paper's statistics by period.
type Entry = (
    &'static str,
    &'static str,
    fn(&PeriodErrors) -> Vec<f64>,
    &'static [(&'static str, &'static str, f64)],
);

const STATISTICS: [(&str, f64); 4] =
    [("25th percentile", 0.25), ("median", 0.5), ("75th percentile", 0.75), ("largest", 1.0)];

const ENTRIES: [Entry; 5] = [
    (
        "1",
        "relay capacity error",
        |period| period.capacity_errors.clone(),
        &[
            ("day", "median", 7.0),
            ("year", "median", 28.0),
            ("day", "75th percentile", 18.0),
            ("year", "75th percentile", 49.0),
        ],
    ),
    (
        "2",
        "network capacity error",
        |period| sorted(period.network.iter().filter_map(|hour| hour.capacity_error)),
        &[
            ("day", "median", 5.0),
            ("week", "median", 14.0),
            ("month", "median", 22.0),
            ("year", "median", 36.0),
            ("year", "largest", 60.0),
        ],
    ),
    (
        "4",
        "network weight error",
        |period| sorted(period.network.iter().filter_map(|hour| hour.weight_error)),
        &[
            ("day", "median", 21.0),
            ("week", "median", 22.0),
            ("month", "median", 24.0),
            ("year", "median", 30.0),
        ],
    ),
    (
        "10a",
        "variation of the advertised bandwidth",
        |period| period.advertised_rsds.clone(),
        &[
            ("day", "median", 32.0),
            ("week", "median", 55.0),
            ("week", "25th percentile", 27.0),
            ("week", "75th percentile", 82.0),
            ("month", "median", 62.0),
            ("year", "median", 65.0),
            ("year", "largest", 7937.0),
        ],
    ),
    (
        "10b",
        "variation of the weight",
        |period| period.weight_rsds.clone(),
        &[
            ("day", "median", 14.0),
            ("day", "75th percentile", 23.0),
            ("week", "median", 31.0),
            ("month", "median", 43.0),
            ("year", "median", 50.0),
            ("year", "75th percentile", 73.0),
        ],
    ),
];

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The table.
#[must_use]
pub fn lines(errors: &Errors) -> Vec<Line> {
    let mut lines = Vec::new();
    for (figure, quantity, values, paper) in ENTRIES {
        for period in &errors.periods {
            let values = values(period);
            let name = &period.period.name;
            for (statistic, share) in STATISTICS {
                let known = paper.iter().find(|row| row.0 == name && row.1 == statistic);
                lines.push(Line {
                    figure,
                    quantity,
                    period: name.clone(),
                    statistic,
                    here_percent: percentile(&values, share).map(|percentile| percentile * 100.0),
                    paper_percent: known.map(|row| row.2),
                });
            }
        }
    }
    for period in &errors.periods {
        let share = |values: &[f64], counts: fn(f64) -> bool| {
            let count = values.iter().filter(|value| counts(**value)).count();
            (!values.is_empty()).then(|| 100.0 * count as f64 / values.len() as f64)
        };
        for (figure, statistic, here_percent) in [
            (
                "1",
                "relays with an error above 0",
                share(&period.capacity_errors, |error| error > 0.0),
            ),
            ("3", "relays with a mean below 1", share(&period.weight_errors, |mean| mean < 1.0)),
        ] {
            lines.push(Line {
                figure,
                quantity: if figure == "1" { "relay capacity error" } else { "relay weight error" },
                period: period.period.name.clone(),
                statistic,
                here_percent,
                // The paper says "over 85 %", of no period.
                paper_percent: Some(85.0),
            });
        }
    }
    lines
}
