//! Figures of a report on relays.

use crate::figure::{Axis, ExperimentFigure, On, Role, Series, cumulative};
use crate::text::{finite, mbit, quotient, range};
use crate::{RelayReport, SecondPoint, Verdict};

/// Maximum number of relays in the overview.
pub(crate) const MOST_IN_OVERVIEW: usize = 100;
/// The paper's error bounds of estimates: *ε₁* = 0.20 below, *ε₂* = 0.05 above.
const ACCURATE: [f64; 2] = [0.80, 1.05];

/// All relays in rows: limits, estimates with quartiles, and the relays' own reports.
pub(crate) fn overview(relays: &[RelayReport]) -> Option<ExperimentFigure> {
    let shown = relays.get(..MOST_IN_OVERVIEW).unwrap_or(relays);
    let all: Vec<f64> = shown.iter().flat_map(rates).collect();
    if all.is_empty() {
        return None;
    }
    type Of<'a> = &'a dyn Fn(&RelayReport) -> Option<(f64, String)>;
    let dots = |name: &str, role, of: Of<'_>| {
        let found = (0_u32..).zip(shown).filter_map(|(row, relay)| Some((row, relay, of(relay)?)));
        let (points, labels) = found
            .map(|(row, relay, (rate, text))| {
                ((rate, f64::from(row)), format!("{}, {text}", relay.nickname))
            })
            .unzip();
        Series::dots(name, role, points).labels(labels)
    };
    let rate_of = |rate: fn(&RelayReport) -> Option<f64>| {
        move |relay: &RelayReport| {
            finite(rate(relay)).map(|rate| (rate, format!("{} Mbit/s", mbit(Some(rate)))))
        }
    };
    let estimate = |relay: &RelayReport| {
        let quartiles = relay.spread_mbit_per_s.map_or_else(String::new, |spread| {
            format!(", quartiles {}", range(spread.lower_quartile, spread.upper_quartile))
        });
        let rate = relay.estimate()?;
        Some((rate, format!("{} Mbit/s{quartiles}", mbit(Some(rate)))))
    };
    let quartiles = (0_u32..).zip(shown).filter_map(|(row, relay)| {
        let (spread, row) = (relay.spread_mbit_per_s?, f64::from(row));
        relay.estimate()?;
        Some([(spread.lower_quartile, row), (spread.upper_quartile, row), (f64::NAN, row)])
    });
    let caption = "Per relay: the estimate with its quartiles, the median of what the relay itself \
                   reported, and its configured limit where known.";
    let left_out = if relays.len() > shown.len() {
        format!(" Only the first {MOST_IN_OVERVIEW} relays are shown here.")
    } else {
        String::new()
    };
    let figure = ExperimentFigure::new(
        "overview",
        "Overview",
        rate_axis(&all),
        Axis::rows(shown.iter().map(label)),
    )
    .with(dots("configured limit", Role::Truth, &rate_of(|relay| relay.limit_mbit_per_s)))
    .with(dots(
        "relay’s own median",
        Role::Client,
        &rate_of(|relay| relay.relay_reported_mbit_per_s),
    ))
    .with(Series::line("quartiles", Role::Measurement, quartiles.flatten().collect()))
    .with(dots("estimate", Role::Measurement, &estimate))
    .caption(format!("{caption}{left_out}"));
    Some(figure)
}

/// The distribution of the ratio of estimate to limit, as in figure 6 of the paper; `None` for a single relay.
pub(crate) fn accuracy(relays: &[RelayReport]) -> Option<ExperimentFigure> {
    let mut ratios: Vec<(f64, &RelayReport)> =
        relays.iter().filter_map(|relay| Some((relay.ratio_to_limit()?, relay))).collect();
    if ratios.len() < 2 {
        return None;
    }
    ratios.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let names = ratios.iter().map(|(ratio, relay)| {
        format!("{}: {} of its limit", relay.nickname, quotient(Some(*ratio)))
    });
    let names = names.collect();
    let ratios: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
    let line = Series::steps("estimate ÷ limit", Role::Measurement, cumulative(&ratios));
    let y = Axis { is_percent: true, ..Axis::new("share of relays").showing(0.0, 1.04) };
    let x = Axis::new("estimate ÷ configured limit").showing(0.73, 1.12);
    let [low, high] = ACCURATE;
    let figure = ExperimentFigure::new("accuracy", "Accuracy", x, y)
        .band(On::X, low, high, "", Role::Truth)
        .mark(On::X, 1.0, "", Role::Truth)
        .with(line.labels(names))
        .caption(format!(
            "The share of relays whose estimate divided by their configured limit is at most x. The shaded band, {low:.2} \
             to {high:.2}, is what the FlashFlow paper promises; the dotted line marks perfect estimates."
        ));
    Some(figure)
}

/// One relay, second by second.
pub(crate) fn seconds(relay: &RelayReport) -> Option<ExperimentFigure> {
    let last = relay.series.iter().map(|point| point.round).max()?;
    let end = relay.series.iter().map(shown_second).fold(1.0, f64::max);
    let x = Axis::new("second").showing(0.5, end + 0.5);
    let mut figure = ExperimentFigure::new("seconds", "Second by second", x, Axis::new("Mbit/s"));
    let (last_round, earlier): (Vec<&SecondPoint>, Vec<&SecondPoint>) =
        relay.series.iter().partition(|point| point.round == last);
    if !earlier.is_empty() {
        let rounds = earlier.chunk_by(|one, next| one.round == next.round);
        let gap = [(f64::NAN, f64::NAN)];
        let points = rounds.flat_map(|round| {
            round.iter().map(|point| (shown_second(point), point.measured_mbit_per_s)).chain(gap)
        });
        figure = figure.with(Series::line("earlier rounds", Role::Muted, points.collect()));
    }
    let reported = last_round
        .iter()
        .filter_map(|point| Some((shown_second(point), finite(point.relay_reported_mbit_per_s)?)));
    let reported: Vec<(f64, f64)> = reported.collect();
    if !reported.is_empty() {
        figure = figure.with(Series::line("relay reports", Role::Client, reported));
    }
    let measured = last_round.iter().map(|point| (shown_second(point), point.measured_mbit_per_s));
    figure = figure.with(Series::line("measured", Role::Measurement, measured.collect()));
    let fastest = relay.series.iter().map(|point| point.measured_mbit_per_s).fold(0.0, f64::max);
    // A level far above all seconds would flatten them.
    let conclusive_limit = relay
        .conclusive_limit_mbit_per_s
        .filter(|conclusive_limit_mbit_per_s| *conclusive_limit_mbit_per_s < 3.0 * fastest);
    let levels = [
        ("median: the estimate", relay.estimate_mbit_per_s, Role::Sum),
        ("configured limit", relay.limit_mbit_per_s, Role::Truth),
        ("conclusive below", conclusive_limit, Role::Problem),
    ];
    for (name, rate, role) in levels {
        if let Some(rate) = finite(rate) {
            let name = format!("{name} ({})", mbit(Some(rate)));
            figure = figure.with(Series::line(&name, role, vec![(1.0, rate), (end, rate)]));
        }
    }
    Some(figure)
}

/// Seconds are numbered from one.
fn shown_second(point: &SecondPoint) -> f64 {
    f64::from(point.second) + 1.0
}

/// A linear axis from zero, unless small rates would be invisible next to large ones.
fn rate_axis(rates: &[f64]) -> Axis {
    let smallest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = rates.iter().copied().fold(0.0, f64::max);
    if smallest > 0.0 && largest / smallest > 30.0 {
        Axis::new("Mbit/s, logarithmic").log()
    } else {
        Axis::new("Mbit/s").showing(0.0, largest)
    }
}

fn rates(relay: &RelayReport) -> impl Iterator<Item = f64> {
    let lowest = relay.spread_mbit_per_s.map(|spread| spread.lower_quartile);
    [relay.limit_mbit_per_s, relay.estimate_mbit_per_s, relay.relay_reported_mbit_per_s, lowest]
        .into_iter()
        .filter_map(finite)
}

fn label(relay: &RelayReport) -> String {
    let name: String = relay.nickname.chars().take(20).collect();
    let suffix = if matches!(relay.verdict(), Verdict::Failed(_)) { " (failed)" } else { "" };
    format!("{name}{suffix}")
}
