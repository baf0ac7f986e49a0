//! The answer and the figures.

use super::part_time::{GAIN_MAX, Point};
use super::{Attack, Cell};
use crate::grid::Rows;
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series, Value};

/// The largest value of a column among cases whose names begin so.
fn largest<'c>(
    cases: impl IntoIterator<Item = &'c Case>,
    prefix: &str,
    column: &str,
) -> Option<(f64, &'c Case)> {
    let value = |case: &'c Case| Some((case.value(column)?.as_f64()?, case));
    let named = cases.into_iter().filter(|case| case.name.starts_with(prefix));
    named.filter_map(value).max_by(|one, other| one.0.total_cmp(&other.0))
}

pub(super) fn answer(cases: &[Case]) -> String {
    let mut parts = Vec::new();
    if let Some((deviation, _)) = largest(cases, "one period", "deviation_standard_errors") {
        parts.push(format!(
            "in the paper's plan, part-time relays fail as often as its sum says, within {deviation:.1} standard errors"
        ));
    }
    if let Some((gain, case)) = largest(cases, "part-time, our plan, ", "largest_gain") {
        let authorities = case.value("authorities").and_then(Value::as_u64).unwrap_or_default();
        parts.push(format!(
            "in ours, a part-time relay gets at most {gain:.2} times what it serves, with {authorities} authorities"
        ));
    }
    if let Some((gain, _)) =
        largest(cases, "part-time, our plan without confirmations", "largest_gain")
    {
        parts.push(format!("without confirmations {gain:.2} times"));
    }
    if let Some((unserved, _)) = largest(cases, "slow after a majority, our plan", "unserved_share")
    {
        parts.push(format!(
            "a relay that is slow after a majority has measured it does not serve up to {unserved:.2} of its weight"
        ));
    }
    if let Some((moved, _)) = largest(cases, "flood", "moved_measurements") {
        parts.push(format!("a flood moves {moved} measurements of old relays"));
    }
    let is_known = |case: &&Case| case.value("knowledge").is_some_and(|value| value == "known");
    let known = cases.iter().filter(is_known);
    if let Some((known, _)) = largest(known, "one host", "max_estimates_share") {
        parts.push(format!("known relays on one host get {known:.2} times its capacity"));
    }
    let held = cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    let judged = cases.iter().filter(|case| case.verdict != CaseVerdict::Reported).count();
    parts.push(format!("{held} of {judged} expectations held"));
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

pub(super) fn figures(rows: &Rows<'_, Cell>) -> Vec<ExperimentFigure> {
    let axis = |label: &str| Axis { is_percent: true, ..Axis::new(label).showing(0.0, 1.0) };
    let mut part_time = ExperimentFigure::new(
        "part-time",
        "Weight of part-time relays over what they serve",
        axis("share of the slots in which the relay is fast"),
        Axis::new("weight ÷ service").showing(0.0, 1.5),
    )
    .mark(On::Y, GAIN_MAX, "1.34", Role::Truth);
    let mut denial = ExperimentFigure::new(
        "denial",
        "Weight of an honest relay under denial of service",
        axis("share of the slots in which the relay is attacked"),
        axis("weight ÷ capacity"),
    );
    let mut count = 0;
    for (cell, points) in rows.data::<Vec<Point>>() {
        if cell.attack == Attack::PartTime && cell.name.ends_with(" 5") {
            let points = points.iter().map(|point| (point.fast_share, point.gain)).collect();
            part_time = part_time.with(Series::line(&cell.name, Role::Nth(count), points));
            count += 1;
        }
    }
    let mut count = 0;
    for (cell, points) in rows.data::<Vec<(f64, f64)>>() {
        let is_shown = [" 1", " 5", " 6"].iter().any(|number| cell.name.ends_with(number));
        if cell.attack == Attack::Denial && is_shown {
            denial = denial.with(Series::line(&cell.name, Role::Nth(count), points));
            count += 1;
        }
    }
    [part_time, denial].into_iter().filter(|figure| !figure.series.is_empty()).collect()
}
