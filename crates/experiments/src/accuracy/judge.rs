//! Whether a run held.

use super::Cell;
use crate::grid::Row;
use crate::mode::Mode;
use crate::trial::{BOUNDS, Tried};
use onion::Rate;
use report::experiment::{Case, CaseVerdict, Miss};
use serde::Serialize;

/// C tor passes some 92 % of its limit. With less than this share of its limit it was not
/// loaded, whatever the estimate is.
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

/// The row of a run. If it did not hold, the miss is what this machine had to do with it.
pub(super) fn row(cell: &Cell, guess: Rate, tried: &Tried) -> Row {
    let limit = cell.limit.0;
    let sent = tried.sent_mbit().filter(|mbit| *mbit > 0.0);
    let doubt = tried.doubt(limit.is_some());
    let case = judged(cell, sent, tried.estimate_mbit());
    let case = match tried.estimate() {
        None => case.ended(CaseVerdict::Failed, tried.outcome.to_string()),
        Some(_) => Tried::doubted(case, doubt.as_deref()),
    };
    let case = case.with(&Columns {
        guess_mbit_per_s: guess.as_mbit_per_s(),
        rounds: tried.estimate().map(|estimate| estimate.rounds),
        conclusive: doubt.is_none() && tried.estimate().is_some(),
        relay_reported_mbit_per_s: tried.said_mbit(),
        kernel_sent_mbit_per_s: sent,
    });
    // A busy machine makes for too little, never for too much.
    let is_high = case.ratio.is_some_and(|ratio| ratio > *BOUNDS.end());
    let starvation = tried.starvation().filter(|_| !is_high);
    let scatter = tried.scatter().filter(|_| case.truth_mbit_per_s == sent);
    let why: Vec<String> = starvation.into_iter().chain(scatter).collect();
    let is_good = matches!(case.verdict, CaseVerdict::Held | CaseVerdict::Inconclusive);
    let misses = (!is_good && !why.is_empty())
        .then(|| Miss { case: case.name.clone(), explanation: why.join("; ") });
    Row { misses: misses.into_iter().collect(), ..Row::from(tried.with_loads(case)) }
}

/// The case of what the kernel counted and what was estimated, in Mbit/s.
fn judged(cell: &Cell, sent: Option<f64>, estimate: Option<f64>) -> Case {
    let limit = cell.limit.0;
    let truth = match cell.mode {
        Mode::Echo => limit.or(sent),
        Mode::Transit => sent,
    };
    let Some(truth) = truth else {
        let case = Case::new(cell.to_string(), None, estimate);
        return case.ended(CaseVerdict::Failed, "the relay sent nothing, by the kernel");
    };
    let case = Case::judged(cell.to_string(), truth, estimate, BOUNDS);
    let (Mode::Transit, Some(limit), Some(sent)) = (cell.mode, limit, sent) else { return case };
    let share = sent / limit;
    if case.verdict == CaseVerdict::Held && share < LOADED {
        let detail = format!("tor sent but {:.0} % of its limit", share * 100.0);
        return case.ended(CaseVerdict::Missed, detail);
    }
    case
}

#[cfg(test)]
mod tests {
    use super::super::Limit;
    use super::*;
    use crate::trial::{Quarter, TriedSecond};
    use coordinator::{Estimate, Outcome, Params, Spread};
    use lab::processors::Load;
    use onion::Instant;

    fn cell(mode: Mode, limit: Option<f64>) -> Cell {
        Cell { mode, limit: Limit(limit), measurers: 1, run: 1, relay: 0 }
    }

    fn verdict(mode: Mode, limit: Option<f64>, sent: f64, estimate: f64) -> CaseVerdict {
        let cell = cell(mode, limit);
        judged(&cell, Some(sent), Some(estimate)).verdict
    }

    #[test]
    fn an_echo_is_held_against_its_limit_and_others_against_what_they_sent() {
        use CaseVerdict::{Held, Missed};
        assert_eq!(verdict(Mode::Echo, Some(100.0), 100.0, 97.0), Held);
        assert_eq!(verdict(Mode::Echo, Some(100.0), 80.0, 80.0), Missed);
        assert_eq!(verdict(Mode::Echo, None, 800.0, 790.0), Held);
        assert_eq!(verdict(Mode::Echo, None, 700.0, 790.0), Missed, "it did not send that");
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 91.0), Held);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 100.0), Missed);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 70.0, 69.0), Missed, "was not loaded");
        assert_eq!(verdict(Mode::Transit, None, 700.0, 690.0), Held);
    }

    /// A relay of which 100 Mbit/s were found, as it says itself, and that sent but half of that.
    fn boaster() -> Tried {
        let rate = Rate::from_mbit_per_s;
        let second = |number: u64| TriedSecond {
            end: Instant::from_millis(1000 * number),
            measured: rate(100.0),
            said: Some(rate(100.0)),
            sent: rate(50.0),
            quarters: [Quarter::default(); 4],
        };
        let outcome = Outcome::Measured(Estimate {
            mode: coordinator::Mode::Echo,
            capacity: rate(100.0),
            inconclusive: None,
            rounds: 1,
            allocated: rate(400.0),
            params: Params::default(),
            seconds: Vec::new(),
            spread: Spread::default(),
            checked_cells: 0,
        });
        let load = Load { used: 1.0, ..Load::default() };
        Tried {
            outcome,
            seconds: (1..=5).map(second).collect(),
            load,
            measurers: Vec::new(),
            sockets: None,
            bottlenecks: Vec::new(),
        }
    }

    #[test]
    fn no_relay_is_taken_at_its_word() {
        for mode in [Mode::Echo, Mode::Transit] {
            let row = row(&cell(mode, None), Rate::ZERO, &boaster());
            let case = &row.cases[0];
            assert_eq!((case.truth_mbit_per_s, case.verdict), (Some(50.0), CaseVerdict::Missed));
        }
    }

    #[test]
    fn a_run_of_which_nothing_is_known_failed() {
        assert_eq!(
            judged(&cell(Mode::Transit, None), None, Some(1.0)).verdict,
            CaseVerdict::Failed
        );
    }
}
