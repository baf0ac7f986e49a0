//! The report on all runs.

use super::{AccuracyGrid, Cell, team};
use crate::grid::Rows;
use crate::mode::Mode;
use crate::reporting::{list, median, parameter};
use crate::trial::ratio_figure;
use report::experiment::{Case, CaseVerdict, ExperimentFigure, ExperimentReport, Promise, Value};

pub(super) fn conclude(grid: &AccuracyGrid, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
    let mut cases: Vec<(&Cell, &Case)> = rows.cases().collect();
    // Settings alternate in the order of runs.
    cases.sort_by_key(|(cell, _)| (cell.mode, cell.relay, cell.measurers, cell.run));
    let without_cell = report.cases.split_off(cases.len());
    report.cases = cases.iter().map(|(_, case)| (*case).clone()).chain(without_cell).collect();
    report.answer = answer(report);
    report.promise = Promise::Share(0.99);
    report.figures = figures(grid, &cases);
    report.notes.extend(doubtful(&cases));
    let params = grid.params();
    let modes: Vec<&str> = grid.modes.iter().map(|mode| mode.name()).collect();
    report.parameters = vec![
        parameter("modes", list(&modes)),
        parameter("limits", list(&grid.limits)),
        parameter("measurers, each a process", list(&grid.teams)),
        parameter("pumps of each", grid.pumps().to_string()),
        parameter("runs of each setting", grid.runs),
        parameter("seconds t", params.seconds),
        parameter("sockets s, at most", params.sockets),
        parameter("multiplier m", params.multiplier),
        parameter("excess factor f", format!("{:.3}", params.excess_factor())),
        parameter("share of cells checked p", params.check_share),
        parameter("first guess over limit", "1, ½, 2, in turn".to_owned()),
    ];
}

fn answer(report: &ExperimentReport) -> String {
    let all = report.cases.len();
    let (held, open) = (report.count(CaseVerdict::Held), report.count(CaseVerdict::Inconclusive));
    let mut ratios: Vec<f64> = report.cases.iter().filter_map(|case| case.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let (Some(low), Some(median), Some(high)) =
        (ratios.first(), median(ratios.iter().copied()), ratios.last())
    else {
        return format!("None of {all} runs had an estimate.");
    };
    format!(
        "{held} of {} conclusive runs were within −10 % and +5 %; {open} more were, but \
         inconclusive. Estimate over truth was {low:.3} to {high:.3}, with a median of {median:.3}.",
        all - open
    )
}

fn figures(grid: &AccuracyGrid, cases: &[(&Cell, &Case)]) -> Vec<ExperimentFigure> {
    let mut figures = Vec::new();
    for mode in grid.modes.iter().copied() {
        let ratios = |is: &dyn Fn(&Cell) -> bool| -> Vec<f64> {
            let of_mode = cases.iter().filter(|(cell, _)| cell.mode == mode && is(cell));
            of_mode.filter_map(|(_, case)| case.ratio).collect()
        };
        let limits = grid.limits.iter();
        let by_limit =
            limits.map(|limit| (limit.to_string(), ratios(&|cell| cell.limit == *limit)));
        let teams = grid.teams.iter();
        let by_team =
            teams.map(|measurers| (team(*measurers), ratios(&|cell| cell.measurers == *measurers)));
        let (by, how, end) = match mode {
            Mode::Echo => ("limit, or what a relay without a limit sent", "By echo", ""),
            Mode::Transit => ("what tor sent according to the kernel", "In transit", "-transit"),
        };
        let figure = |name: &str, what: &str, groups: Vec<(String, Vec<f64>)>| {
            ratio_figure(&format!("{name}{end}"), &format!("{how}, by {what}"), by, groups)
        };
        figures.push(figure("figure-6", "the relay's limit", by_limit.collect()));
        figures.push(figure("by-team", "the team's size", by_team.collect()));
    }
    figures.retain(|figure| !figure.series.is_empty());
    figures
}

fn doubtful(cases: &[(&Cell, &Case)]) -> Option<String> {
    let is_doubtful =
        |case: &Case| case.ratio.is_some() && case.value("conclusive") == Some(&Value::Bool(false));
    let doubtful = cases.iter().filter(|(_, case)| is_doubtful(case));
    let (all, limited) =
        (doubtful.clone().count(), doubtful.filter(|(cell, _)| cell.limit.0.is_some()).count());
    (all > 0).then(|| {
        format!(
            "{all} runs were inconclusive, {limited} of them with a limited relay: relay and measurers share this machine's \
             processors, so the result is how fast the relay is while its measurers run. These runs do not count as held."
        )
    })
}
