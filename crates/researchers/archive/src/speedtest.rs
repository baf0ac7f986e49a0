//! Section 3.4 of the paper: the effect of a speed test of all relays on advertised bandwidths and weights, from the authors' data or from
//! any dataset and interval.

mod interval;
pub mod simulated;

pub use interval::of_interval;

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Campaign, NetworkHour, Relays};
use crate::times::{DAY_S, minute};
use report::experiment::{
    Axis, Case, ExperimentFigure, ExperimentReport, On, Promise, Role, Series,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A relay before and after the test.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Whether the test measured it.
    pub is_measured: bool,
    /// Mean share of the weight before and after; none if no view has its weight.
    pub weight_share: (Option<f64>, Option<f64>),
    /// The largest advertised bandwidth before and after, byte/s.
    pub advertised_byte_per_s: (f64, f64),
}

/// The network's advertised bandwidth at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hour {
    /// The time, in Unix seconds; in the authors' data, on their clock.
    pub unix_s: i64,
    /// The sum over all relays, Gbit/s.
    pub total_gbit_per_s: f64,
    /// The sum over measured relays, Gbit/s.
    pub measured_gbit_per_s: Option<f64>,
    /// Network weight error: weights compared with the bandwidths advertised at that time.
    pub weight_error: Option<f64>,
    /// Network weight error compared with true capacities, which only a simulation has.
    pub true_weight_error: Option<f64>,
}

/// A speed test, and the relays around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedTest {
    /// The beginning, in Unix seconds.
    pub from_unix_s: i64,
    /// Its end.
    pub until_unix_s: i64,
    /// Number of measured relays, including those that are not in `changes`.
    pub measured_relays: usize,
    /// Relays that were present before and after.
    pub changes: Vec<Change>,
    /// The network hour by hour.
    pub hours: Vec<Hour>,
    /// Remarks for the reader of figures.
    pub notes: Vec<&'static str>,
}

/// The effect of a speed test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// Number of measured relays that were present before and after.
    pub relays: usize,
    /// The sum of the largest advertised bandwidths of measured relays before the test, Gbit/s.
    pub measured_before_gbit_per_s: f64,
    /// The sum of the largest advertised bandwidths of measured relays after the test, Gbit/s.
    pub measured_after_gbit_per_s: f64,
    /// The sum of the largest advertised bandwidths of all relays before the test, Gbit/s.
    pub all_before_gbit_per_s: f64,
    /// The sum of the largest advertised bandwidths of all relays after the test, Gbit/s.
    pub all_after_gbit_per_s: f64,
    /// The 90th percentile of the changes of measured relays (rank ⌊0.9 n⌋), Mbit/s.
    pub change_90th_mbit_per_s: f64,
    /// Network weight error before: weights and capacities before the test. Like the other two, over the relays that have a weight.
    pub weight_error_before: Option<f64>,
    /// Network weight error after: weights and capacities after the test.
    pub weight_error_after: Option<f64>,
    /// Network weight error of the weights before the test, compared with the larger of both capacities.
    pub weight_error_of_larger: Option<f64>,
    /// Medians of the network's hours in Gbit/s: before the test, from its end to five days after its start, and in the five days after
    /// that.
    pub median_gbit_per_s: [Option<f64>; 3],
    /// Hours from the start of the test to the first and the last hour in which the network's total is at least halfway between the median
    /// before the test and the largest total.
    pub half_way_hours: Option<(f64, f64)>,
}

const GBIT_PER_BYTE: f64 = 8e-9;
/// The authors read times in UTC as their local time, UTC−4. Their figure and windows use these times.
const AUTHORS_CLOCK_S: i64 = 4 * 3600;
/// Tor keeps its observed bandwidth for five days.
const MEMORY_S: i64 = 5 * DAY_S;

/// The authors' data, if they are in the dataset.
///
/// # Errors
/// The dataset does not have them, or cannot be read.
pub fn of_authors(dataset: &Dataset) -> Result<SpeedTest, ArchiveError> {
    let rows: Vec<Campaign> = dataset.read_all(&mut Relays::default())?;
    let Some(first) = rows.first() else {
        let problem = "the dataset has no data of the authors' speed test; import their folder, or choose an interval with --from and --until";
        return Err(ArchiveError::Missing(problem.to_owned()));
    };
    let changes = rows.iter().filter_map(|row| {
        let before = f64::from(row.advertised_before_byte_per_s?);
        let after = f64::from(row.advertised_after_byte_per_s?);
        Some(Change {
            is_measured: row.is_measured,
            weight_share: (Some(row.weight_share_before?), Some(row.weight_share_after?)),
            advertised_byte_per_s: (before, after),
        })
    });
    let hours: Vec<NetworkHour> = dataset.read_all(&mut Relays::default())?;
    let hour = |row: &NetworkHour| Hour {
        unix_s: i64::from(row.valid_after_unix_s) + AUTHORS_CLOCK_S,
        total_gbit_per_s: row.advertised_byte_per_s * GBIT_PER_BYTE,
        measured_gbit_per_s: Some(row.measured_byte_per_s * GBIT_PER_BYTE),
        ..Hour::default()
    };
    Ok(SpeedTest {
        from_unix_s: first.started_unix_s.into(),
        until_unix_s: first.ended_unix_s.into(),
        measured_relays: rows.iter().filter(|row| row.is_measured).count(),
        changes: changes.collect(),
        hours: hours.iter().map(hour).collect(),
        notes: vec![
            "The lines rise from zero in the first hours: the authors' data begin there, and count a relay from its first descriptor after that. \
             The network did not change.",
        ],
    })
}

impl SpeedTest {
    /// Computes the effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        let measured: Vec<&Change> =
            self.changes.iter().filter(|change| change.is_measured).collect();
        let sums = |changes: &mut dyn Iterator<Item = &Change>| {
            let (before, after) = changes.fold((0.0, 0.0), |sum, change| {
                (sum.0 + change.advertised_byte_per_s.0, sum.1 + change.advertised_byte_per_s.1)
            });
            (before * GBIT_PER_BYTE, after * GBIT_PER_BYTE)
        };
        let mut differences: Vec<f64> = measured
            .iter()
            .map(|change| (change.advertised_byte_per_s.1 - change.advertised_byte_per_s.0) * 8e-6)
            .collect();
        differences.sort_by(f64::total_cmp);
        let rank = differences.len() * 9 / 10;
        let error = |weight: fn(&Change) -> Option<f64>, capacity: fn(&Change) -> f64| {
            weight_error(self.changes.iter().map(|change| (weight(change), capacity(change))))
        };
        let (measured_before_gbit_per_s, measured_after_gbit_per_s) =
            sums(&mut measured.iter().copied());
        let (all_before_gbit_per_s, all_after_gbit_per_s) = sums(&mut self.changes.iter());
        Effect {
            relays: measured.len(),
            measured_before_gbit_per_s,
            measured_after_gbit_per_s,
            all_before_gbit_per_s,
            all_after_gbit_per_s,
            change_90th_mbit_per_s: differences.get(rank).copied().unwrap_or_default(),
            weight_error_before: error(
                |change| change.weight_share.0,
                |change| change.advertised_byte_per_s.0,
            ),
            weight_error_after: error(
                |change| change.weight_share.1,
                |change| change.advertised_byte_per_s.1,
            ),
            weight_error_of_larger: error(
                |change| change.weight_share.0,
                |change| change.advertised_byte_per_s.0.max(change.advertised_byte_per_s.1),
            ),
            median_gbit_per_s: self.medians(),
            half_way_hours: self.half_way(),
        }
    }

    fn half_way(&self) -> Option<(f64, f64)> {
        let [before, ..] = self.medians();
        let largest = self.hours.iter().map(|hour| hour.total_gbit_per_s).fold(0.0, f64::max);
        let half_way = f64::midpoint(before?, largest);
        let mut above = self
            .hours
            .iter()
            .filter(|hour| hour.unix_s >= self.from_unix_s && hour.total_gbit_per_s >= half_way)
            .map(|hour| (hour.unix_s - self.from_unix_s) as f64 / 3600.0);
        let first = above.next()?;
        Some((first, above.next_back().unwrap_or(first)))
    }

    /// The first day is left out, because descriptors before the data are unknown.
    fn medians(&self) -> [Option<f64>; 3] {
        let begin = self.hours.first().map_or(0, |hour| hour.unix_s + DAY_S);
        let (from, until) = (self.from_unix_s, self.until_unix_s);
        let later = from + MEMORY_S + (until - from);
        let median = |begin: i64, end: i64| {
            let hours = self.hours.iter().filter(|hour| (begin..end).contains(&hour.unix_s));
            let mut values: Vec<f64> = hours.map(|hours| hours.total_gbit_per_s).collect();
            values.sort_by(f64::total_cmp);
            crate::percentile(&values, 0.5)
        };
        [median(begin, from), median(until, from + MEMORY_S), median(later, later + MEMORY_S)]
    }

    /// The report: figure 5 and the numbers.
    #[must_use]
    pub fn report(&self) -> ExperimentReport {
        let effect = self.effect();
        let points = |value: fn(&Hour) -> Option<f64>| -> Vec<(f64, f64)> {
            self.hours
                .iter()
                .filter_map(|hour| Some((decimal_day(hour.unix_s, self.from_unix_s), value(hour)?)))
                .collect()
        };
        let (begin, end) = (0.0, decimal_day(self.until_unix_s, self.from_unix_s));
        let mut figure = ExperimentFigure::new(
            "figure-5",
            "Advertised bandwidth of the network",
            Axis::new("days since the test began"),
            Axis::new("Gbit/s"),
        )
        .band(On::X, begin, end, "speed test", Role::Muted)
        .with(Series::line(
            "all relays",
            Role::Nth(0),
            points(|hour| Some(hour.total_gbit_per_s)),
        ));
        let measured = points(|hour| hour.measured_gbit_per_s);
        if !measured.is_empty() {
            figure = figure.with(Series::line("measured relays", Role::Nth(1), measured));
        }
        let percent = |error: Option<f64>| {
            error.map_or_else(|| "no weights".to_owned(), |error| format!("{:.2} %", error * 100.0))
        };
        let pair = |(before, after): (f64, f64)| {
            format!("{before:.2} → {after:.2} Gbit/s ({:+.1} %)", (after / before - 1.0) * 100.0)
        };
        let case = |name: &str, value: String| Case::reported(name, "").column("value", value);
        let mut cases = vec![
            case("measured relays", self.measured_relays.to_string()),
            case("of these, present before and after", effect.relays.to_string()),
            case(
                "advertised bandwidth of these",
                pair((effect.measured_before_gbit_per_s, effect.measured_after_gbit_per_s)),
            ),
            case(
                "advertised bandwidth of all relays",
                pair((effect.all_before_gbit_per_s, effect.all_after_gbit_per_s)),
            ),
            case(
                "90th percentile of their changes",
                format!("{:.2} Mbit/s", effect.change_90th_mbit_per_s),
            ),
            case("network weight error before", percent(effect.weight_error_before)),
            case("network weight error after", percent(effect.weight_error_after)),
            case(
                "weights before, compared with the larger capacity",
                percent(effect.weight_error_of_larger),
            ),
        ];
        for (name, value) in
            ["before", "until its sixth day", "later"].iter().zip(effect.median_gbit_per_s)
        {
            if let Some(value) = value {
                cases.push(case(&format!("median hour {name}"), format!("{value:.2} Gbit/s")));
            }
        }
        if let Some((rise, fall)) = effect.half_way_hours {
            cases.push(case(
                "hours from its beginning until half of the rise",
                format!("{rise:.0}"),
            ));
            cases.push(case(
                "hours from its beginning until half of the fall",
                format!("{fall:.0}"),
            ));
        }
        let mut figures = vec![figure];
        type Error = fn(&Hour) -> Option<f64>;
        let errors: [(&str, Error); 2] = [
            ("against advertised bandwidths", |hour| hour.weight_error),
            ("against true capacities", |hour| hour.true_weight_error),
        ];
        if self.hours.iter().any(|hour| hour.weight_error.is_some()) {
            let y = Axis { is_percent: true, ..Axis::new("error (NWE)") };
            let figure = ExperimentFigure::new(
                "weight-error",
                "Network weight error",
                Axis::new("days since the test began"),
                y,
            )
            .band(On::X, begin, end, "speed test", Role::Muted);
            figures.push((0..).zip(errors).fold(figure, |figure, (place, (name, error))| {
                figure.with(Series::line(name, Role::Nth(place), points(error)))
            }));
        }
        ExperimentReport {
            name: "archive-speedtest".into(),
            title: "The effect of a speed test on advertised bandwidths".into(),
            question: "By how much do relays underestimate themselves until they are flooded?"
                .into(),
            answer: format!(
                "Measured relays advertised {}.",
                pair((effect.measured_before_gbit_per_s, effect.measured_after_gbit_per_s))
            ),
            promise: Promise::Nothing(String::new()),
            software_version: env!("CARGO_PKG_VERSION").into(),
            parameters: vec![
                ("beginning".into(), minute(self.from_unix_s)),
                ("end".into(), minute(self.until_unix_s)),
            ],
            cases,
            figures,
            notes: self.notes.iter().map(|note| (*note).to_owned()).collect(),
            ..ExperimentReport::default()
        }
    }
}

fn decimal_day(unix_s: i64, from_unix_s: i64) -> f64 {
    (unix_s - from_unix_s) as f64 / DAY_S as f64
}

/// Equation 6 over relays with a weight and a capacity, both normalized over these relays. None if all weights or all capacities are zero.
pub(crate) fn weight_error(
    relays: impl Iterator<Item = (Option<f64>, f64)> + Clone,
) -> Option<f64> {
    let pairs = relays.filter_map(|(weight, capacity)| Some((weight?, capacity)));
    let (weights, capacities) =
        pairs.clone().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    if weights <= 0.0 || capacities <= 0.0 {
        return None;
    }
    let differences =
        pairs.map(|(weight, capacity)| (weight / weights - capacity / capacities).abs());
    Some(0.5 * differences.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_without_a_weight_have_no_share_in_the_weight_error() {
        let relays = [(Some(1.0), 3.0), (Some(1.0), 1.0), (None, 100.0)];
        assert_eq!(weight_error(relays.into_iter()), Some(0.25));
        assert_eq!(weight_error([(None, 1.0)].into_iter()), None);
        assert_eq!(weight_error([(Some(0.0), 1.0)].into_iter()), None);
    }
}
