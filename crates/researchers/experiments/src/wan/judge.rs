//! The verdict on a run, and the report on all of them.

use super::fault::Fault;
use super::{Cell, TimedResult, WanGrid};
use crate::grid::{Grid as _, Row, Rows};
use crate::mode::Mode;
use crate::reporting::{list, parameter};
use crate::trial::TrialResult;
use coordinator::{Bottleneck, Inconclusive, Outcome, Waited};
use onion::Duration;
use report::experiment::{Case, CaseVerdict, ExperimentReport, Value};
use serde::Serialize;

/// The minimum share of conclusive runs on paths up to 200 ms and 0.1 % loss.
const CONCLUSIVE_SHARE: f64 = 0.95;

/// The column for what the relay carries without distance.
const NEAR: &str = "truth_near_mbit_per_s";

/// The minimum share of runs that can be judged. With fewer, this machine and not the relays decides the result.
const JUDGED_SHARE: f64 = 0.5;

const NO_PROCESSOR: &str = "not judged: the relay waited for a processor, so its capacity is not known; use more processors, or less other load";

const NO_TRUTH: &str =
    "not judged: the relay's capacity could not be measured (the reason was printed then)";

const NO_FAULT: &str = "not judged: the measurement ended before the fault";

/// Columns of a run besides its cell.
#[derive(Serialize)]
struct Columns {
    limited_by: &'static str,
    truth_near_mbit_per_s: Option<f64>,
    truth_behind_mbit_per_s: Option<f64>,
    /// Whether the run can be judged: not if the relay lacked a processor, or an intended fault did not happen.
    trial: bool,
    blame: Option<String>,
    rounds: Option<u32>,
    sockets: Option<u32>,
    took_s: f64,
    took_since_fault_s: Option<f64>,
    sent_mbit_per_s: Option<f64>,
    behind_percent: Option<f64>,
}

/// What the relay of a cell carries without distance over this number of sockets, if an earlier row has it. A truth from an
/// earlier run in which the relay was behind does not count.
pub(super) fn known_near_mbit(
    earlier: Rows<'_, Cell>,
    cell: &Cell,
    sockets: Option<u32>,
) -> Option<f64> {
    let is_same = |other: &Cell| {
        (other.mode, other.congestion, other.relay) == (cell.mode, cell.congestion, cell.relay)
    };
    let of_case = |case: &Case| {
        let found = case.value("sockets").and_then(Value::as_u64);
        (found == sockets.map(u64::from)).then(|| case.value(NEAR)?.as_f64()).flatten()
    };
    earlier.cases().filter(|(other, _)| is_same(other)).find_map(|(_, case)| of_case(case))
}

pub(super) fn row(grid: &WanGrid, cell: &Cell, near: Option<f64>, timed: &TimedResult) -> Row {
    let result = &timed.result;
    let (verdict, limited_by) = match result.estimate().map(|estimate| estimate.inconclusive) {
        Some(None) => ("conclusive", "relay"),
        Some(Some(reason)) => ("lower_bound", limited_by(&reason)),
        None => ("failed", "unknown"),
    };
    // The FlashFlow relay does not read what it cannot send, so the return path can be why it is behind. C tor reads on.
    let is_c_tor = cell.mode == Mode::Transit;
    let behind =
        Some(result).filter(|_| is_c_tor).and_then(TrialResult::mean_sent_while_behind_mbit);
    let truth = behind.or(near);
    let fatal = cell.fault.filter(|fault| fault.is_fatal());
    let trial = match fatal {
        // Blame does not depend on what the relay can do.
        Some(_) => timed.took_since_fault.is_some(),
        // A relay that waits for a processor carries less than it carried without distance.
        None => behind.is_some() || truth.is_some() && !is_slowed(cell.mode, result),
    };
    let name = cell.to_string();
    let case = match (fatal, truth) {
        (Some(_), _) if !trial => unjudged(name, result, NO_FAULT),
        (None, None) if !trial => unjudged(name, result, NO_TRUTH),
        (None, Some(_)) if !trial => unjudged(name, result, NO_PROCESSOR),
        // A failure with a reason is not a wrong number.
        _ => result.case(name, truth, CaseVerdict::Inconclusive, CaseVerdict::Inconclusive),
    };
    let case = match fatal {
        Some(fault) if trial => judge_fatal(grid, fault, timed, verdict, case),
        _ => case,
    };
    let columns = Columns {
        limited_by,
        truth_near_mbit_per_s: near,
        truth_behind_mbit_per_s: behind,
        trial,
        blame: result.outcome.blame().map(|blame| blame.to_string()),
        rounds: result.estimate().map(|estimate| estimate.rounds),
        sockets: result.sockets,
        took_s: timed.took.as_secs_f64(),
        took_since_fault_s: timed
            .took_since_fault
            .map(|took_since_fault| took_since_fault.as_secs_f64()),
        sent_mbit_per_s: result.sent_mbit(),
        behind_percent: result.share_behind().map(|share_behind| (share_behind * 100.0).round()),
    };
    let case = result.with_loads(case.with(&columns).says(verdict));
    Row { is_temporary: !trial, ..Row::from(case) }
}

/// The case of a run that cannot be judged because of `why`, unless the measurement itself has a reason.
fn unjudged(name: String, result: &TrialResult, why: &str) -> Case {
    let case = Case::new(name, None, result.estimate_mbit());
    let reason = match &result.outcome {
        Outcome::Failed { .. } => result.outcome.to_string(),
        Outcome::Measured(estimate) => {
            estimate.inconclusive.map_or_else(|| why.to_owned(), |reason| reason.to_string())
        }
    };
    case.ended(CaseVerdict::Inconclusive, reason)
}

/// Whether the relay may have carried less than it can because it waited for a processor. A FlashFlow relay makes up for delays unless it
/// never sleeps.
pub(super) fn is_slowed(mode: Mode, result: &TrialResult) -> bool {
    match mode {
        Mode::Transit => result.waited_for_processor(),
        Mode::Echo => result.is_starved(),
    }
}

/// The case of a run in which a path breaks or a relay stops. There can be no estimate; the failure must have a reason, in time, that
/// blames the right one.
fn judge_fatal(
    grid: &WanGrid,
    fault: Fault,
    timed: &TimedResult,
    verdict: &str,
    case: Case,
) -> Case {
    let params = grid.params();
    // At most, the round continues to its end, with its lead, and the set-up of the next one times out.
    let longest = Duration::from_secs(u64::from(grid.seconds) + 6)
        + params.report_grace
        + params.setup_timeout;
    let took = timed.took_since_fault.unwrap_or(timed.took);
    let detail = case.detail.clone();
    let missed = |problem: String| case.clone().ended(CaseVerdict::Missed, problem);
    if verdict == "conclusive" {
        missed(format!("conclusive in spite of the fault: {}", fault.description()))
    } else if took > longest {
        missed(format!("it took {:.0} s after the fault: {detail}", took.as_secs_f64()))
    } else if detail.is_empty() {
        missed("there is no reason".to_owned())
    } else if let Outcome::Failed { reason, .. } = &timed.result.outcome
        && fault.is_blamed_wrongly(reason)
    {
        missed(format!("the wrong party is blamed: {detail}"))
    } else {
        case.ended(CaseVerdict::Held, detail)
    }
}

const fn limited_by(reason: &Inconclusive) -> &'static str {
    match reason {
        Inconclusive::PathLimited { .. }
        | Inconclusive::PathSettling { .. }
        | Inconclusive::PathUnknown { .. } => "path",
        Inconclusive::QueueOfOne { .. } => "unknown",
        Inconclusive::MeasurerLimited { bottleneck, .. } => match bottleneck.by {
            Bottleneck::Path { .. } | Bottleneck::Loss { .. } | Bottleneck::Share { .. } => {
                "measurer's path"
            }
            Bottleneck::Processor => "measurer's processor",
        },
        Inconclusive::HeldBack { by: Waited::Processor, .. } => "measurer's processor",
        Inconclusive::TeamTooSmall { .. }
        | Inconclusive::LoadTooSmall { .. }
        | Inconclusive::HeldBack { .. } => "assigned rate",
        Inconclusive::Contended { .. } | Inconclusive::ClientsUnknown => "clients",
        Inconclusive::RoundLimit { .. }
        | Inconclusive::Unsteady { .. }
        | Inconclusive::Scattered { .. }
        | Inconclusive::BelowRecent { .. } => "unknown",
        Inconclusive::RelayStarved { .. } => "relay's processor",
    }
}

pub(super) fn conclude(grid: &WanGrid, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
    let is_trial = |case: &Case| case.value("trial").and_then(Value::as_bool) != Some(false);
    let is_conclusive = |case: &Case| case.word.as_deref() == Some("conclusive");
    let is_held = |case: &Case| case.verdict == CaseVerdict::Held;
    let is_right = |case: &Case| is_conclusive(case) && is_held(case);
    let is_wrong = |case: &Case| {
        case.verdict == CaseVerdict::Missed
            || is_trial(case) && is_conclusive(case) && !is_held(case)
    };
    // On longer or lossier paths, a lower bound is good enough.
    let is_moderate = |(cell, case): &(&Cell, &Case)| {
        is_trial(case) && cell.rtt_ms <= 200 && cell.loss_percent <= 0.1 && cell.fault.is_none()
    };
    let count = |is: &dyn Fn(&Case) -> bool| report.cases.iter().filter(|case| is(case)).count();
    let (trials, wrong, conclusive) = (count(&is_trial), count(&is_wrong), count(&is_right));
    let without_cell = report.cases.len() - rows.cases().count();
    let moderate = without_cell + rows.cases().filter(is_moderate).count();
    let found = rows.cases().filter(|case| is_moderate(case) && is_right(case.1)).count();
    let share = found as f64 / moderate.max(1) as f64;
    let judged = trials as f64 / report.cases.len().max(1) as f64;
    let none = report.cases.len() - trials;
    report.answer = format!(
        "Of {trials} estimates, {wrong} were conclusive but wrong, and {conclusive} conclusive and right. Up to 200 ms and 0.1 % loss, \
         {found} of {moderate} were conclusive and right ({:.0} %, at least {:.0} % expected).",
        share * 100.0,
        CONCLUSIVE_SHARE * 100.0,
    );
    if none > 0 {
        report.answer += &format!(" {none} more runs could not be judged.");
    }
    let faults: Vec<String> =
        grid.faults.iter().map(|fault| fault.description().to_owned()).collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    report.parameters = vec![
        parameter("seconds t", grid.seconds),
        parameter("round trips, ms", list(&grid.rtts_ms)),
        parameter("losses in each direction, %", list(&grid.losses_percent)),
        parameter("congestion control", list(&grid.congestions)),
        parameter("limits, Mbit/s", list(&grid.limits)),
        parameter("faults", faults),
        parameter("faults begin", grid.fault_at.description().to_owned()),
        parameter("seed", grid.seed.to_string()),
    ];
    let held = wrong == 0 && share >= CONCLUSIVE_SHARE && judged >= JUDGED_SHARE;
    report.promise = WanGrid::promise(held);
}

#[cfg(test)]
mod tests {
    use super::super::fault::Moment;
    use super::*;
    use crate::trial::BOUNDS;
    use lab::processors::Load;
    use lab::wan::Congestion;
    use onion::Rate;
    use report::experiment::Promise;

    fn timed(load: Load, capacity: f64, inconclusive: Option<Inconclusive>) -> TimedResult {
        let result = TrialResult::with_estimate(Rate::from_mbit_per_s(capacity), inconclusive);
        let result = TrialResult { load, sockets: Some(8), ..result };
        TimedResult { result, took: Duration::from_secs(20), took_since_fault: None }
    }

    const STARVED: Load = Load { used: 0.5, waited: 0.45, wanted: 0.95, machine: 1.0, stolen: 0.0 };

    const CELL: Cell = Cell {
        mode: Mode::Transit,
        rtt_ms: 20,
        loss_percent: 0.0,
        congestion: Congestion::Reno,
        limit_mbit_per_s: 90.0,
        fault: None,
        fault_at: None,
        relay: 0,
    };

    fn report(rows: Vec<Row>) -> ExperimentReport {
        let cells = vec![CELL; rows.len()];
        let cases = rows.iter().flat_map(|row| row.cases.clone()).collect();
        let rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
        let mut report = ExperimentReport { cases, ..ExperimentReport::default() };
        WanGrid::example().conclude(Rows::new(&cells, &rows), &mut report);
        report
    }

    #[test]
    fn a_run_whose_relay_lacked_a_processor_is_not_judged() {
        let judged = |mode, load, capacity, inconclusive| {
            let timed = timed(load, capacity, inconclusive);
            row(&WanGrid::example(), &Cell { mode, ..CELL }, Some(90.0), &timed)
        };
        let idle = Load::default();
        let unsteady = Some(Inconclusive::Unsteady { mean: 5_000_000, median: 6_000_000 });
        let late = Load { waited: 0.1, wanted: 0.3, ..idle };
        let unjudged = vec![
            judged(Mode::Transit, STARVED, 50.0, None),
            judged(Mode::Transit, STARVED, 89.0, None),
            judged(Mode::Transit, STARVED, 50.0, unsteady),
            judged(Mode::Transit, late, 50.0, None),
            judged(Mode::Echo, STARVED, 50.0, None),
        ];
        for run in &unjudged {
            assert!(
                run.is_temporary && run.cases[0].verdict == CaseVerdict::Inconclusive,
                "{run:?}"
            );
            assert_eq!(run.cases[0].ratio, None, "there is no truth");
        }
        let wrong = judged(Mode::Transit, idle, 50.0, None);
        assert!(!wrong.is_temporary && wrong.cases[0].verdict == CaseVerdict::Missed, "{wrong:?}");
        assert!(!judged(Mode::Echo, late, 89.0, None).is_temporary, "it slept, and so carried all");
        let right = || judged(Mode::Transit, idle, 89.0, None);
        let starved = || judged(Mode::Transit, STARVED, 89.0, None);

        let held = |report: &ExperimentReport| {
            matches!(report.promise, Promise::Decided { held: true, .. })
        };
        let none = report(unjudged);
        assert!(!held(&none), "nothing was judged");
        assert!(none.answer.starts_with("Of 0 estimates, 0 "), "{}", none.answer);
        assert!(none.answer.contains("5 more runs could not be judged"), "{}", none.answer);
        assert!(none.cases[0].value("relay_waited_percent").is_some());
        let also_right = report(vec![right(), judged(Mode::Transit, STARVED, 50.0, None)]);
        assert!(held(&also_right), "{}", also_right.answer);
        let hardly_any = report(vec![right(), starved(), starved()]);
        assert!(!held(&hardly_any), "too few runs were judged");
        let also_wrong = report(vec![wrong, starved()]);
        assert!(!held(&also_wrong), "{}", also_wrong.answer);
    }

    #[test]
    fn a_run_without_a_truth_is_not_wrong() {
        let idle = timed(Load::default(), 50.0, None);
        let run = row(&WanGrid::example(), &Cell { mode: Mode::Echo, ..CELL }, None, &idle);
        assert!(run.is_temporary && run.cases[0].verdict == CaseVerdict::Inconclusive, "{run:?}");
        assert!(report(vec![run]).answer.starts_with("Of 0 estimates, 0 "));
    }

    #[test]
    fn a_fault_is_judged_if_it_happened_even_without_a_processor() {
        let cell = Cell { fault: Some(Fault::Breaks), fault_at: Some(Moment::Middle), ..CELL };
        let judged = |took_since_fault| {
            let timed = TimedResult { took_since_fault, ..timed(STARVED, 89.0, None) };
            row(&WanGrid::example(), &cell, Some(90.0), &timed)
        };
        let happened = judged(Some(Duration::from_secs(5)));
        assert!(!happened.is_temporary, "{happened:?}");
        assert_eq!(happened.cases[0].verdict, CaseVerdict::Missed, "{happened:?}");
        let over_before = judged(None);
        assert!(over_before.is_temporary, "{over_before:?}");
        assert_eq!(over_before.cases[0].verdict, CaseVerdict::Inconclusive);
    }

    /// What the relay sent while it was behind on a lossy path is not the truth for other paths.
    #[test]
    fn a_continued_grid_reuses_the_truth_without_distance() {
        let case = Case::judged("run", 72.0, Some(71.0), BOUNDS)
            .column("sockets", 32)
            .column(NEAR, 81.0)
            .column("truth_behind_mbit_per_s", 72.0);
        let (cells, rows) = ([CELL], [Some(Row::from(case))]);
        let known = |cell: Cell, sockets| known_near_mbit(Rows::new(&cells, &rows), &cell, sockets);
        assert_eq!(known(CELL, Some(32)), Some(81.0));
        assert_eq!(known(CELL, Some(8)), None);
        assert_eq!(known(Cell { relay: 1, ..CELL }, Some(32)), None);
    }
}
