//! The verdict on a run.

use super::Cell;
use crate::grid::Row;
use crate::mode::Mode;
use crate::trial::{BOUNDS, TrialResult};
use onion::Rate;
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// C tor carries some 92 % of its limit. If it sent less than this share of its limit, it was not fully loaded, whatever the
/// estimate is.
const LOADED: f64 = 0.92 * *BOUNDS.start();

/// Columns of a run besides its cell.
#[derive(Serialize)]
struct Columns {
    guess_mbit_per_s: f64,
    rounds: Option<u32>,
    conclusive: bool,
    relay_reported_mbit_per_s: Option<f64>,
    kernel_sent_mbit_per_s: Option<f64>,
}

/// The row of a run. If it did not hold, the row's miss explains how this machine contributed.
pub(super) fn row(cell: &Cell, guess: Rate, result: &TrialResult) -> Row {
    let limit = cell.limit.0;
    let sent = result.sent_mbit().filter(|mbit| *mbit > 0.0);
    let doubt = result.doubt(limit.is_some());
    let case = judged(cell, sent, result.estimate_mbit());
    let case = match result.estimate() {
        None => case.ended(CaseVerdict::Failed, result.outcome.to_string()),
        Some(_) => TrialResult::with_doubt(case, doubt.as_deref()),
    };
    let case = case.with(&Columns {
        guess_mbit_per_s: guess.as_mbit_per_s(),
        rounds: result.estimate().map(|estimate| estimate.rounds),
        conclusive: doubt.is_none() && result.estimate().is_some(),
        relay_reported_mbit_per_s: result.reported_mbit(),
        kernel_sent_mbit_per_s: sent,
    });
    let misses = result.miss(&case, result.scatter().filter(|_| case.truth_mbit_per_s == sent));
    Row { misses: misses.into_iter().collect(), ..Row::from(result.with_loads(case)) }
}

/// The case of a run in which the relay sent `sent` according to the kernel, in Mbit/s.
fn judged(cell: &Cell, sent: Option<f64>, estimate: Option<f64>) -> Case {
    let limit = cell.limit.0;
    let is_tor = cell.is_patched || cell.mode == Mode::Transit;
    let truth = if is_tor { sent } else { limit.or(sent) };
    let Some(truth) = truth else {
        let case = Case::new(cell.to_string(), None, estimate);
        return case.ended(CaseVerdict::Failed, "the relay sent nothing according to the kernel");
    };
    let case = Case::judged(cell.to_string(), truth, estimate, BOUNDS);
    let (Mode::Transit, Some(limit), Some(sent)) = (cell.mode, limit, sent) else { return case };
    let share = sent / limit;
    if case.verdict == CaseVerdict::Held && share < LOADED {
        let detail = format!("tor sent only {:.0} % of its limit", share * 100.0);
        return case.ended(CaseVerdict::Missed, detail);
    }
    case
}

#[cfg(test)]
mod tests {
    use super::super::Limit;
    use super::*;
    use crate::trial::{Quarter, TrialSecond};
    use lab::processors::Load;
    use onion::Instant;

    fn cell(mode: Mode, limit: Option<f64>) -> Cell {
        Cell { mode, is_patched: false, limit: Limit(limit), measurers: 1, run: 1, relay: 0 }
    }

    fn verdict(mode: Mode, limit: Option<f64>, sent: f64, estimate: f64) -> CaseVerdict {
        let cell = cell(mode, limit);
        judged(&cell, Some(sent), Some(estimate)).verdict
    }

    #[test]
    fn echo_estimates_are_compared_with_the_limit_and_others_with_what_was_sent() {
        use CaseVerdict::{Held, Missed};
        assert_eq!(verdict(Mode::Echo, Some(100.0), 100.0, 97.0), Held);
        assert_eq!(verdict(Mode::Echo, Some(100.0), 80.0, 80.0), Missed);
        assert_eq!(verdict(Mode::Echo, None, 800.0, 790.0), Held);
        assert_eq!(verdict(Mode::Echo, None, 700.0, 790.0), Missed, "it did not send that");
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 91.0), Held);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 100.0), Missed);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 70.0, 69.0), Missed, "not fully loaded");
        assert_eq!(verdict(Mode::Transit, None, 700.0, 690.0), Held);
    }

    /// A relay with an estimate of 100 Mbit/s, which it also reported, that sent half of it.
    fn inflated() -> TrialResult {
        let rate = Rate::from_mbit_per_s;
        let second = |number: u64| TrialSecond {
            end: Instant::from_millis(1000 * number),
            measured: rate(100.0),
            reported: Some(rate(100.0)),
            sent: rate(50.0),
            quarters: [Quarter::default(); 4],
        };
        TrialResult {
            seconds: (1..=5).map(second).collect(),
            load: Load { used: 1.0, ..Load::default() },
            ..TrialResult::with_estimate(rate(100.0), None)
        }
    }

    #[test]
    fn the_truth_does_not_depend_on_the_relays_reports() {
        for mode in [Mode::Echo, Mode::Transit] {
            let row = row(&cell(mode, None), Rate::ZERO, &inflated());
            let case = &row.cases[0];
            assert_eq!((case.truth_mbit_per_s, case.verdict), (Some(50.0), CaseVerdict::Missed));
        }
    }

    #[test]
    fn a_run_without_a_truth_has_failed() {
        assert_eq!(
            judged(&cell(Mode::Transit, None), None, Some(1.0)).verdict,
            CaseVerdict::Failed
        );
    }
}
