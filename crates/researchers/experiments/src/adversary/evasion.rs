//! The number of forged answers before one is checked, for many forgers in virtual time.

use super::{AdversarySettings, Cell, Context, Kind};
use crate::error::Result;
use crate::grid::Row;
use lab::liars::{ForgerRun, Forgers};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
use std::num::NonZeroU32;

/// One cell in this number is checked (proposal 316, appendix A).
const CHECK_ONE_IN: NonZeroU32 = NonZeroU32::MIN.saturating_add(124);

/// The share of forged answers. It is small, because several forged answers in one bucket are detected somewhat sooner than (1−p)^k
/// predicts.
const SHARE: f64 = 0.03;

/// The numbers *k* of forged answers to evaluate.
const FORGED: [u32; 7] = [1, 10, 25, 50, 125, 250, 400];

/// The quantile of the standard normal distribution for seven intervals that hold jointly with 99 %, so each with 1 − 0.01/7 (Bonferroni).
const Z: f64 = 3.189;

/// The results of all forgers.
struct Evasion {
    runs: u32,
    wrongly_accused: u32,
    points: Vec<Point>,
}

/// The result for one number of forged answers.
#[derive(Clone, Copy, Debug)]
struct Point {
    forged: u32,
    /// The number of undetected forgers.
    evaded: u32,
    share: f64,
    /// (1−p)^k.
    predicted: f64,
    /// The exact share with one check in each bucket.
    exact: f64,
    interval: (f64, f64),
}

/// All forgers.
pub(super) fn cell() -> Cell {
    Cell::with_row(Kind::Evasion, "forgers", run)
}

fn run(context: &Context<'_>) -> Result<Option<Row>> {
    let AdversarySettings { forgers: runs, first_seed, .. } = *context.settings;
    let forgers = Forgers::new(SHARE, CHECK_ONE_IN)?;
    let mut all: Vec<ForgerRun> = Vec::new();
    for number in 0..runs {
        if context.session.interrupt.is_requested() {
            return Ok(None);
        }
        context.doing(format!("forger {} of {runs}, in virtual time", number + 1));
        all.push(forgers.run(first_seed + u64::from(number))?);
    }
    let evasion = Evasion::from_runs(&all);
    Ok(Some(Row { cases: evasion.cases(), figures: vec![evasion.figure()], ..Row::default() }))
}

/// The result in a sentence, from its cases; `None` without any.
pub(super) fn answer(cases: &[&Case]) -> Option<String> {
    let points = || cases.iter().filter(|case| case.value("evasion").is_some());
    let as_predicted = points().filter(|case| case.verdict == CaseVerdict::Held).count();
    let runs = points().find_map(|case| case.value("runs"))?;
    Some(format!(
        " The share of {runs} forgers that remained undetected was as expected with one check in each bucket, and at most (1-p)^k, for \
         {as_predicted} of {} numbers k.",
        points().count()
    ))
}

impl Evasion {
    fn from_runs(all: &[ForgerRun]) -> Self {
        let count = |predicate: &dyn Fn(&ForgerRun) -> bool| {
            u32::try_from(all.iter().filter(|run| predicate(run)).count()).unwrap_or(u32::MAX)
        };
        let runs = count(&|_| true);
        let exact = exact();
        let points = FORGED.iter().map(|forged| {
            let evaded = count(&|run| run.evaded >= *forged as usize);
            let (evasions, of) = (f64::from(evaded), f64::from(runs));
            let interval = interval(evasions, of);
            Point {
                forged: *forged,
                evaded,
                share: evasions / of,
                predicted: predicted(*forged),
                exact: exact.get(*forged as usize).copied().unwrap_or_default(),
                interval,
            }
        });
        Self {
            runs,
            wrongly_accused: count(&|run| run.caught_at.is_some() && !run.is_rightly_accused),
            points: points.collect(),
        }
    }

    /// A case for each number of forged answers, and one for wrong accusations.
    fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = self.points.iter().map(|point| self.case(point)).collect();
        let detail =
            format!("{} of {} accused rightly", self.runs - self.wrongly_accused, self.runs);
        let case = Case::named("forgers: nobody is accused of an honest answer");
        let verdict = CaseVerdict::of(self.wrongly_accused == 0);
        cases.push(case.ended(verdict, detail));
        cases
    }

    fn case(&self, point: &Point) -> Case {
        let Point { forged, evaded, share, predicted, exact, interval: (low, high) } = *point;
        let verdict = CaseVerdict::of(point.is_as_predicted());
        Case::named(format!("forgers: {forged} forged answers"))
            .ended(
                verdict,
                format!(
                    "{evaded} of {} undetected: {share:.4}, between {low:.4} and {high:.4}; expected with one check in each bucket: {exact:.4}; \
                     (1-p)^k = {predicted:.4}",
                    self.runs
                ),
            )
            .column("forged_cells", forged)
            .column("runs", self.runs)
            .column("evaded", evaded)
            .column("evasion", share)
            .column("evasion_low", low)
            .column("evasion_high", high)
            .column("evasion_predicted", predicted)
            .column("evasion_exact", exact)
    }

    /// The evasion rate compared with the paper's.
    fn figure(&self) -> ExperimentFigure {
        let last = FORGED.iter().copied().max().unwrap_or_default();
        let curve = (0..=last).step_by(5).map(|k| (f64::from(k), predicted(k))).collect();
        let seen = self.points.iter().map(|point| (f64::from(point.forged), point.share));
        let bars = self.points.iter().flat_map(|point| {
            let x = f64::from(point.forged);
            // NaN makes a gap after each bar.
            [(x, point.interval.0), (x, point.interval.1), (f64::NAN, f64::NAN)]
        });
        let labels = self.points.iter().map(|point| format!("{} of {}", point.evaded, self.runs));
        let y = Axis { is_percent: true, ..Axis::new("undetected forgers").showing(0.0, 1.02) };
        ExperimentFigure::new("evasion", "Undetected forgers", Axis::new("forged answers k"), y)
            .with(Series::line("(1−p)^k", Role::Truth, curve))
            .with(Series::line("interval", Role::Muted, bars.collect()))
            .with(Series::dots("seen", Role::Measurement, seen.collect()).labels(labels.collect()))
            .caption(format!(
                "The share of {} relays, each of which forges {} % of its answers, that returned k forged answers before one was checked. One \
                 cell in {CHECK_ONE_IN} is checked. All intervals together contain the true shares with 99 %.",
                self.runs,
                SHARE * 100.0
            ))
    }
}

impl Point {
    /// Whether the share agrees with the exact one and does not exceed the paper's.
    fn is_as_predicted(&self) -> bool {
        let (low, high) = self.interval;
        (low..=high).contains(&self.exact) && low <= self.predicted
    }
}

/// For each number of forged answers up to the largest, the exact share of undetected forgers.
///
/// In each bucket of cells one cell is checked, at a random place. Any cell is forged with the same probability. A forger passes buckets
/// until a checked cell is forged. Its forged cells are any of the other cells of the passed buckets, and those before the checked cell
/// of the last bucket.
fn exact() -> Vec<f64> {
    let others = CHECK_ONE_IN.get() - 1;
    let last = FORGED.iter().copied().max().unwrap_or_default();
    // The distribution of the number of forged cells after one more cell.
    let one_more = |shares: &[f64]| -> Vec<f64> {
        let before = std::iter::once(&0.0).chain(shares);
        before.zip(shares).map(|(fewer, same)| SHARE * fewer + (1.0 - SHARE) * same).collect()
    };
    let mut cells: Vec<f64> = (0..=last).map(|count| f64::from(count == 0)).collect();
    // The distribution for the cells before the checked one, over all of its places.
    let mut before = vec![0.0; cells.len()];
    for place in 0..=others {
        let add = |(sum, share): (&mut f64, &f64)| *sum += share / f64::from(others + 1);
        before.iter_mut().zip(&cells).for_each(add);
        if place < others {
            cells = one_more(&cells);
        }
    }
    // The distribution for all passed buckets. Each bucket is passed with the probability 1 − SHARE.
    let mut passed: Vec<f64> = Vec::new();
    for count in 0..cells.len() {
        let earlier =
            passed.iter().rev().zip(cells.iter().skip(1)).map(|(a, b)| a * b).sum::<f64>();
        let ends = if count == 0 { SHARE } else { 0.0 };
        passed.push((ends + (1.0 - SHARE) * earlier) / (1.0 - (1.0 - SHARE) * cells[0]));
    }
    let exactly = (0..passed.len()).map(|count| {
        let pairs = passed.iter().take(count + 1).zip(before.iter().take(count + 1).rev());
        pairs.map(|(a, b)| a * b).sum::<f64>()
    });
    let still = |left: &mut f64, share: f64| {
        let before = *left;
        *left -= share;
        Some(before)
    };
    exactly.scan(1.0, still).collect()
}

/// (1−p)^k.
fn predicted(forged: u32) -> f64 {
    (1.0 - 1.0 / f64::from(CHECK_ONE_IN.get())).powf(f64::from(forged))
}

/// Wilson's score interval of a share.
fn interval(successes: f64, of: f64) -> (f64, f64) {
    let share = successes / of;
    let middle = share + Z * Z / (2.0 * of);
    let half = Z * (share * (1.0 - share) / of + Z * Z / (4.0 * of * of)).sqrt();
    let scale = 1.0 + Z * Z / of;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_contains_the_share_and_narrows_with_more_runs() {
        for (successes, of) in [(0.0, 10.0), (3.0, 10.0), (10.0, 10.0), (370.0, 1000.0)] {
            let (low, high) = interval(successes, of);
            let share = successes / of;
            assert!((0.0..=share + 1e-12).contains(&low) && (share - 1e-12..=1.0).contains(&high));
            let (closer, _) = interval(10.0 * successes, 10.0 * of);
            assert!(closer >= low - 1e-12);
        }
        // Wilson's score by hand: 5 of 10.
        let (low, high) = interval(5.0, 10.0);
        assert!((low - 0.1449).abs() < 1e-3 && (high - 0.8551).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn the_exact_share_is_just_below_the_papers() {
        let exact = exact();
        assert!((exact[0] - 1.0).abs() < 1e-12, "without forged answers");
        // The first forged answer is checked with the same probability as any cell.
        assert!((exact[1] - (1.0 - 1.0 / 125.0)).abs() < 1e-9, "{}", exact[1]);
        assert!(exact.is_sorted_by(|few, many| few >= many));
        for forged in FORGED {
            let ratio = exact[forged as usize] / predicted(forged);
            assert!((0.93..=1.0 + 1e-9).contains(&ratio), "{forged}: {ratio}");
        }
    }

    #[test]
    fn too_many_or_too_few_undetected_forgers_are_a_miss() {
        let run = |evaded| ForgerRun { evaded, caught_at: Some(9), is_rightly_accused: true };
        let evasion = Evasion::from_runs(&[run(1000); 100]);
        let missed = |case: &&Case| case.verdict == CaseVerdict::Missed;
        let cases = evasion.cases();
        assert!(cases.iter().filter(missed).count() >= 5, "{cases:?}");
        let none = Evasion::from_runs(&[run(0); 100]).cases();
        assert!(none.iter().filter(missed).count() >= 5, "{none:?}");
        // The expected number of undetected forgers for each k.
        let exact = exact();
        let as_expected = (0..2000u32).map(|number| {
            let share = f64::from(number) / 2000.0;
            run(exact.iter().take_while(|left| **left > share).count().saturating_sub(1))
        });
        let evasion = Evasion::from_runs(&as_expected.collect::<Vec<_>>());
        assert_eq!(evasion.cases().iter().find(missed), None);
        let wrong = ForgerRun { is_rightly_accused: false, ..run(0) };
        let accused = Evasion::from_runs(&[wrong]).cases();
        assert!(accused.last().is_some_and(|case| missed(&case)));
    }
}
