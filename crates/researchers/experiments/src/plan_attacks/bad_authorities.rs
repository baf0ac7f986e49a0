//! Some bandwidth authorities are bad: they raise a relay, lower one, or warn a relay of each measurement.

use super::Settings;
use super::authorities::{Behavior, CAPACITY, PlanKind, Run, World};
use super::part_time::NEARLY_NOTHING;
use super::single_periods::{Honest, binomial, play};
use crate::columns::rounded;
use crate::error::Result;
use crate::grid::Row;
use crate::mode::Mode;
use coordinator::Params;
use onion::Rate;
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;

/// What bad authorities report of a relay that they raise, over its capacity.
const RAISED: f64 = 100.0;

/// The share of fast slots of the part-time relay that bad authorities help.
const FAST: f64 = 0.25;

/// The weights of relays with bad authorities.
#[derive(Clone, Debug, Serialize)]
struct Columns {
    authorities: usize,
    bad_authorities: usize,
    /// The weight of a slow relay that they raise, over its capacity.
    raised_weight_share: Option<f64>,
    /// The weight of an honest relay that they lower, over its capacity.
    lowered_weight_share: Option<f64>,
    /// The paper's plan: periods in which a relay that is fast in a quarter of the slots does not get its full weight.
    failed_share: Option<f64>,
    /// The sum of section 5, if the bad authorities report that it is fast.
    binomial_share: Option<f64>,
    /// The time for which a relay is fast that learns from one of them when all measure it. They have a common seed.
    warned_fast_s_a_day: Option<f64>,
    /// Its weight over its capacity.
    warned_weight_share: Option<f64>,
}

/// A relay that is fast only in slots in which it is measured.
struct Warned;

impl Behavior for Warned {
    fn share(&mut self, _: u64, due: usize) -> f64 {
        if due > 0 { 1.0 } else { NEARLY_NOTHING }
    }
}

/// All numbers of bad authorities up to the first that decides alone.
pub(super) fn row(authorities: usize, settings: &Settings) -> Result<Row> {
    let majority = authorities / 2 + 1;
    let cases = (0..=majority).map(|bad| case(authorities, bad, settings));
    Ok(Row { cases: cases.collect::<Result<_>>()?, ..Row::default() })
}

fn case(authorities: usize, bad: usize, settings: &Settings) -> Result<Case> {
    let world =
        World { plan: PlanKind::Memoryless, mode: Mode::Echo, authorities, has_shared_seed: true };
    let run = Run { days: settings.days.min(20), seed: settings.seed };
    let report = |rate: Rate| {
        move |place: usize, estimate: Option<Rate>| if place < bad { Some(rate) } else { estimate }
    };
    let raised = world.play(run, &mut |_| NEARLY_NOTHING, report(CAPACITY.scaled(RAISED))).weight;
    let lowered = world.play(run, &mut |_| 1.0, report(CAPACITY.scaled(NEARLY_NOTHING))).weight;
    let warned = world.play(run, &mut Warned, |_, estimate| estimate);
    let fast_s = warned.measured * authorities as f64 * f64::from(Params::default().seconds);
    let honest = Honest { measuring: authorities - bad, of: authorities };
    let failures = play(honest, settings.periods / 10, settings.seed)?;
    let failed = failures.into_iter().find(|failures| (failures.fast_share() - FAST).abs() < 1e-9);
    let columns = Columns {
        authorities,
        bad_authorities: bad,
        raised_weight_share: rounded(raised / NEARLY_NOTHING, 3),
        lowered_weight_share: rounded(lowered, 3),
        failed_share: failed.and_then(|failures| failures.failed_share()),
        binomial_share: binomial(honest, FAST).and_then(|share| rounded(share, 5)),
        warned_fast_s_a_day: (bad > 0).then(|| rounded(fast_s, 1)).flatten(),
        warned_weight_share: (bad > 0).then(|| rounded(warned.weight, 3)).flatten(),
    };
    // To raise a relay, more than half of the authorities are needed; to lower one, half of an even number are enough.
    let (can_raise, can_lower) = (bad > authorities / 2, bad > (authorities - 1) / 2);
    let has_raised = raised / NEARLY_NOTHING > 1.0 + TOLERANCE;
    let has_lowered = lowered < 1.0 - TOLERANCE;
    let is_expected = (has_raised, has_lowered) == (can_raise, can_lower);
    let what =
        |has: bool, verb: &str| format!("{verb} {}", if has { "any weight" } else { "no weight" });
    let detail = format!("they {} and {}", what(has_raised, "raise"), what(has_lowered, "lower"));
    let name = format!("bad authorities, {bad} of {authorities}");
    Ok(Case::named(name).ended(CaseVerdict::of(is_expected), detail).with(&columns))
}

/// Beyond the accuracy of a measurement.
const TOLERANCE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn half_of_an_even_number_lowers_and_only_a_majority_raises() {
        let number = |case: &Case, column: &str| case.value(column).and_then(Value::as_f64);
        for authorities in [5, 6] {
            let row = row(authorities, &Settings::small()).expect("a row");
            for (bad, case) in row.cases.iter().enumerate() {
                assert_eq!(case.verdict, CaseVerdict::Held, "{case:?}");
                let is_lowered = number(case, "lowered_weight_share") < Some(0.5);
                assert_eq!(is_lowered, bad >= 3, "{case:?}");
                let is_raised = number(case, "raised_weight_share") > Some(2.0);
                assert_eq!(is_raised, bad > authorities / 2, "{case:?}");
            }
            // With one accomplice, a relay hardly has to be fast.
            let fast_s = number(&row.cases[1], "warned_fast_s_a_day").expect("a time");
            assert!((100.0..400.0).contains(&fast_s), "{fast_s}");
            assert!(number(&row.cases[1], "warned_weight_share") > Some(0.9));
            assert_eq!(number(&row.cases[0], "warned_weight_share"), None);
        }
    }
}
