//! The verdicts on measurements, and the report on all of them.

use super::set::OneOf;
use super::{Cell, ConcurrentGrid};
use crate::grid::{Row, Rows};
use crate::reporting::{median, parameter};
use crate::trial::{BOUNDS, TrialResult, TrialSecond, ratio_figure};
use onion::{Duration, Instant, Rate};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Promise, Role, Series, Value,
};
use serde::Serialize;

/// Columns of a case besides its cell.
#[derive(Serialize)]
struct Columns {
    over_alone: Option<f64>,
    together_s: Option<f64>,
    measurers: usize,
    relay_reported_mbit_per_s: Option<f64>,
    kernel_sent_mbit_per_s: Option<f64>,
}

/// The row of relays that were measured at the same time.
pub(super) fn row(cell: &Cell, limit: Rate, all: &[OneOf], earlier: &Rows<'_, Cell>) -> Row {
    let (limit, together) = (limit.as_mbit_per_s(), together(all));
    let mut row = Row::default();
    for one in all {
        let name = cell.case(one.place);
        let result = match &one.result {
            Ok(result) => result,
            Err(error) => {
                let case = Case::new(name, Some(limit), None);
                row.cases.push(case.ended(CaseVerdict::Failed, error.to_string()));
                row.is_temporary = true;
                continue;
            }
        };
        // A run for which this machine was too slow is not compared with.
        let alone = Cell { relays_at_once: 1, run: None, ..*cell }.case(one.place);
        let is_alone = |case: &&Case| case.name == alone && case.verdict == CaseVerdict::Held;
        let alone = earlier.cases().map(|(_, case)| case).find(is_alone);
        let alone = alone.and_then(|case| case.estimate_mbit_per_s);
        let over_alone = cell.run.and_then(|_| Some(result.estimate_mbit()? / alone?));
        let case = judged(name, limit, result, over_alone).with(&Columns {
            over_alone,
            together_s: cell.run.map(|_| together.as_secs_f64()),
            measurers: one.measurers,
            relay_reported_mbit_per_s: result.reported_mbit(),
            kernel_sent_mbit_per_s: result.sent_mbit(),
        });
        row.misses.extend(result.miss(&case, None));
        row.cases.push(result.with_loads(case));
    }
    row.figures.extend(cell.run.map(|_| seconds(cell.of, limit, all)));
    row
}

fn judged(name: String, limit: f64, result: &TrialResult, over_alone: Option<f64>) -> Case {
    let estimate = result.estimate_mbit();
    let case = Case::judged(name, limit, estimate, BOUNDS);
    let case = match (estimate, result.doubt(true)) {
        (None, _) => case.ended(CaseVerdict::Failed, result.outcome.to_string()),
        (Some(_), doubt) => TrialResult::with_doubt(case, doubt.as_deref()),
    };
    // A busy machine explains low estimates only.
    let is_low = case.ratio.is_some_and(|ratio| ratio < *BOUNDS.start());
    let case = match result.starvation() {
        Some(why) if is_low && case.verdict == CaseVerdict::Missed => {
            let detail = format!("this machine, not the relay, was the bottleneck: {why}");
            case.ended(CaseVerdict::Inconclusive, detail)
        }
        _ => case,
    };
    let is_apart = |ratio: &f64| !BOUNDS.contains(ratio) && case.verdict == CaseVerdict::Held;
    match over_alone.filter(is_apart) {
        Some(ratio) => {
            case.ended(CaseVerdict::Missed, format!("{ratio:.3} of the relay's estimate alone"))
        }
        None => case,
    }
}

pub(super) fn conclude(grid: &ConcurrentGrid, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
    report.answer = answer(grid, &rows);
    report.promise = Promise::Share(0.99);
    report.figures = figures(grid, &rows, &report.figures);
    let params = grid.params();
    let capacities: Vec<String> = grid.capacities().iter().map(Rate::to_string).collect();
    let set = |count: &u32| format!("{count} × {}", grid.limit(*count));
    report.parameters = vec![
        parameter("relays at once", grid.relays.iter().map(set).collect::<Vec<_>>().join(", ")),
        parameter("measurers, each a process", capacities.join(" and ")),
        parameter("runs at once", grid.runs.to_string()),
        parameter("seconds t", params.seconds),
        parameter("sockets s of each, at most", params.sockets),
        parameter("multiplier m", params.multiplier),
        parameter("excess factor f", format!("{:.3}", params.excess_factor())),
    ];
}

/// The cases whose cells match.
fn cases<'a>(rows: &Rows<'a, Cell>, is: impl Fn(&Cell) -> bool) -> impl Iterator<Item = &'a Case> {
    rows.cases().filter(move |(cell, _)| is(cell)).map(|(_, case)| case)
}

fn answer(grid: &ConcurrentGrid, rows: &Rows<'_, Cell>) -> String {
    let of = |count: u32| {
        let at_once = || cases(rows, |cell| cell.of == count && cell.run.is_some());
        let column = |name: &'static str| {
            at_once().filter_map(move |case| case.value(name).and_then(Value::as_f64))
        };
        let low = at_once().filter_map(|case| case.ratio).reduce(f64::min)?;
        let high = at_once().filter_map(|case| case.ratio).reduce(f64::max)?;
        let alone = median(column("over_alone")).map_or_else(String::new, |median| {
            format!(", with a median of {median:.3} of their estimates alone")
        });
        let together = column("together_s").reduce(f64::min).unwrap_or_default();
        Some(format!(
            "{count} relays at once had {low:.3} to {high:.3} of their limits{alone} (all measurements overlapped \
             for at least {together:.1} s)"
        ))
    };
    let parts: Vec<String> = grid.relays.iter().copied().filter_map(of).collect();
    if parts.is_empty() {
        return "No relays were measured at once.".to_owned();
    }
    format!("{}.", parts.join("; "))
}

/// The distributions of ratios, then the seconds of the last run of each set.
fn figures(
    grid: &ConcurrentGrid,
    rows: &Rows<'_, Cell>,
    of_rows: &[ExperimentFigure],
) -> Vec<ExperimentFigure> {
    let ratios = |is: &dyn Fn(&Cell) -> bool| -> Vec<f64> {
        cases(rows, is).filter_map(|case| case.ratio).collect()
    };
    let mut groups = vec![("alone".to_owned(), ratios(&|cell| cell.run.is_none()))];
    for count in grid.relays.iter().copied() {
        let at_once = ratios(&|cell| cell.of == count && cell.run.is_some());
        groups.push((format!("{count} at once"), at_once));
    }
    let mut figures = vec![ratio_figure("ratios", "Estimate over limit", "limit", groups)];
    for (place, figure) in of_rows.iter().enumerate() {
        if of_rows[place + 1..].iter().all(|later| later.name != figure.name) {
            figures.push(figure.clone());
        }
    }
    figures.retain(|figure| !figure.series.is_empty());
    figures
}

/// The seconds of a measurement.
fn seconds_of(one: &OneOf) -> &[TrialSecond] {
    one.result.as_ref().map_or(&[], |result| &result.seconds)
}

/// The beginning and end of a measurement's seconds.
fn span(one: &OneOf) -> Option<(Instant, Instant)> {
    let seconds = seconds_of(one);
    let last = seconds.last()?.end;
    let length = Duration::from_secs(u64::try_from(seconds.len()).unwrap_or_default());
    Some((Instant::ORIGIN + (last - Instant::ORIGIN).saturating_sub(length), last))
}

/// How long all measurements overlapped.
fn together(all: &[OneOf]) -> Duration {
    let spans: Option<Vec<_>> = all.iter().map(span).collect();
    let spans = spans.unwrap_or_default();
    let began = spans.iter().map(|(began, _)| *began).max();
    let ended = spans.iter().map(|(_, ended)| *ended).min();
    began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.saturating_since(began))
}

/// The seconds of all relays, since the first began.
fn seconds(count: u32, limit: f64, all: &[OneOf]) -> ExperimentFigure {
    let began = all.iter().filter_map(span).map(|(began, _)| began).min().unwrap_or_default();
    let mut figure = ExperimentFigure::new(
        &format!("seconds-{count}"),
        &format!("{count} relays at once"),
        Axis::new("second"),
        Axis::new("Mbit/s"),
    )
    .band(On::Y, limit * BOUNDS.start(), limit * BOUNDS.end(), "−10 % to +5 %", Role::Truth)
    .caption(
        "The rate measured in each second of the last run. The first second contains the burst.",
    );
    for one in all {
        let point = |second: &TrialSecond| {
            ((second.end - began).as_secs_f64(), second.measured.as_mbit_per_s())
        };
        let points: Vec<(f64, f64)> = seconds_of(one).iter().map(point).collect();
        let name = format!("relay {}", one.place + 1);
        figure = figure.with(Series::line(&name, Role::Nth(one.place as usize), points));
    }
    figure
}
