//! How many forged answers come back before one is checked: many forgers, in virtual time.

use super::Laboratory;
use crate::error::Result;
use crate::reporting::print_case;
use lab::liars::{ForgerRun, Forgers};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
use std::num::NonZeroU32;

/// One cell in this number is checked (proposal 316, appendix A).
const CHECK_ONE_IN: NonZeroU32 = NonZeroU32::MIN.saturating_add(124);

/// Share of the answers that are forged: few in each bucket of which one is checked, since several
/// there are found out a little sooner than (1−p)^k says.
const SHARE: f64 = 0.03;

/// The numbers of forged answers that are looked at.
const FORGED: [u32; 7] = [1, 10, 25, 50, 125, 250, 400];

/// Of the standard normal distribution, for intervals that hold all seven true shares at once in 99 %
/// of experiments: each alone in 1 − 0.01/7 (Bonferroni).
const Z: f64 = 3.189;

/// What came of all forgers.
pub(super) struct Evasion {
    runs: u32,
    wrongly_accused: u32,
    points: Vec<Point>,
}

/// For one number of forged answers.
#[derive(Clone, Copy, Debug)]
struct Point {
    forged: u32,
    /// Forgers that were not noticed.
    evaded: u32,
    share: f64,
    /// (1−p)^k.
    predicted: f64,
    /// What must be with one check in each bucket.
    exact: f64,
    interval: (f64, f64),
}

impl Evasion {
    /// Plays all forgers; `None` if the user has had enough.
    pub(super) fn play(scene: &Laboratory<'_>) -> Result<Option<Self>> {
        if scene.interrupt.is_requested() {
            return Ok(None);
        }
        let forgers = Forgers::new(SHARE, CHECK_ONE_IN)?;
        let runs = scene.plan.forgers;
        let mut all: Vec<ForgerRun> = Vec::new();
        for number in 0..runs {
            if scene.interrupt.is_requested() {
                return Ok(None);
            }
            scene.output.doing(format!("forger {} of {runs}, in virtual time", number + 1));
            let seed = scene.plan.first_seed + u64::from(number);
            all.push(forgers.run(seed)?);
        }
        let evasion = Self::of(&all);
        evasion.cases().iter().for_each(|case| print_case(case, scene.output));
        Ok(Some(evasion))
    }

    fn of(all: &[ForgerRun]) -> Self {
        let count = |is_it: &dyn Fn(&ForgerRun) -> bool| {
            u32::try_from(all.iter().filter(|run| is_it(run)).count()).unwrap_or(u32::MAX)
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
    pub(super) fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = self.points.iter().map(|point| self.case(point)).collect();
        let is_right = self.wrongly_accused == 0;
        let accused =
            format!("{} of {} accused rightly", self.runs - self.wrongly_accused, self.runs);
        let case = Case::named("forgers: nobody is accused of an honest answer");
        let verdict = CaseVerdict::of(is_right);
        cases.push(case.ended(verdict, accused).column("kind", "evasion"));
        cases
    }

    fn case(&self, point: &Point) -> Case {
        let Point { forged, evaded, share, predicted, exact, interval: (low, high) } = *point;
        let verdict = CaseVerdict::of(point.is_as_predicted());
        Case::named(format!("forgers: {forged} forged answers"))
            .ended(
                verdict,
                format!(
                    "{evaded} of {} got away with it: {share:.4}, between {low:.4} and {high:.4}; with one \
                     check in each bucket {exact:.4} must, and (1-p)^k is {predicted:.4}",
                    self.runs
                ),
            )
            .column("kind", "evasion")
            .column("forged_cells", forged)
            .column("runs", self.runs)
            .column("evaded", evaded)
            .column("evasion", share)
            .column("evasion_low", low)
            .column("evasion_high", high)
            .column("evasion_predicted", predicted)
            .column("evasion_exact", exact)
    }

    /// What was found, in a sentence.
    pub(super) fn answer(&self) -> String {
        let as_predicted = self.points.iter().filter(|point| point.is_as_predicted());
        format!(
            "Of {} forgers as many got away as one check in each bucket lets, and no more than (1-p)^k says, \
             for {} of {} numbers k.",
            self.runs,
            as_predicted.count(),
            self.points.len()
        )
    }

    /// The evasion rate compared with the paper's.
    pub(super) fn figure(&self) -> ExperimentFigure {
        let last = FORGED.iter().copied().max().unwrap_or_default();
        let curve = (0..=last).step_by(5).map(|k| (f64::from(k), predicted(k))).collect();
        let seen = self.points.iter().map(|point| (f64::from(point.forged), point.share));
        let bars = self.points.iter().flat_map(|point| {
            let x = f64::from(point.forged);
            // A gap after each.
            [(x, point.interval.0), (x, point.interval.1), (f64::NAN, f64::NAN)]
        });
        let labels = self.points.iter().map(|point| format!("{} of {}", point.evaded, self.runs));
        let y = Axis { is_percent: true, ..Axis::new("forgers not found out").showing(0.0, 1.02) };
        ExperimentFigure::new("evasion", "Forgers that get away", Axis::new("forged answers k"), y)
            .with(Series::line("(1−p)^k", Role::Truth, curve))
            .with(Series::line("interval", Role::Muted, bars.collect()))
            .with(Series::dots("seen", Role::Measurement, seen.collect()).labels(labels.collect()))
            .caption(format!(
                "Share of {} relays, each of which forges {} % of its answers, of which no forged \
                 answer was checked before so many had come back. One cell in {CHECK_ONE_IN} is \
                 checked. The intervals hold all true shares at once in 99 % of experiments.",
                self.runs,
                SHARE * 100.0
            ))
    }
}

impl Point {
    /// As many as must, neither more nor fewer; and no more than the paper says.
    fn is_as_predicted(&self) -> bool {
        let (low, high) = self.interval;
        (low..=high).contains(&self.exact) && low <= self.predicted
    }
}

/// For each number up to the last that is looked at, the share of forgers that are not noticed with it.
///
/// Each bucket of cells has one, at any of its places, that is checked, and is forged as often as any other.
/// So a forger passes buckets until that one is forged: in those that it passes any of the other cells may
/// be, in the last one those before it.
fn exact() -> Vec<f64> {
    let others = CHECK_ONE_IN.get() - 1;
    let last = FORGED.iter().copied().max().unwrap_or_default();
    // What forging makes of a distribution of forged cells: one cell more.
    let one_more = |shares: &[f64]| -> Vec<f64> {
        let before = std::iter::once(&0.0).chain(shares);
        before.zip(shares).map(|(fewer, same)| SHARE * fewer + (1.0 - SHARE) * same).collect()
    };
    let mut cells: Vec<f64> = (0..=last).map(|count| f64::from(count == 0)).collect();
    // Of the cells before the one that is checked, wherever that is.
    let mut before = vec![0.0; cells.len()];
    for place in 0..=others {
        let add = |(sum, share): (&mut f64, &f64)| *sum += share / f64::from(others + 1);
        before.iter_mut().zip(&cells).for_each(add);
        if place < others {
            cells = one_more(&cells);
        }
    }
    // Of all buckets that are passed: each next one is with 1 − SHARE.
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

/// Between which shares the true one lies, by Wilson's score.
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
    fn an_interval_holds_the_share_and_gets_narrower_with_more_runs() {
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
    fn what_must_be_is_just_below_what_the_paper_says() {
        let exact = exact();
        assert!((exact[0] - 1.0).abs() < 1e-12, "all have got away with nothing");
        // The first forged answer is checked as often as any.
        assert!((exact[1] - (1.0 - 1.0 / 125.0)).abs() < 1e-9, "{}", exact[1]);
        assert!(exact.is_sorted_by(|few, many| few >= many));
        for forged in FORGED {
            let ratio = exact[forged as usize] / predicted(forged);
            assert!((0.93..=1.0 + 1e-9).contains(&ratio), "{forged}: {ratio}");
        }
    }

    #[test]
    fn too_many_that_get_away_are_a_miss_and_too_few_as_well() {
        let run = |evaded| ForgerRun { evaded, caught_at: Some(9), is_rightly_accused: true };
        let evasion = Evasion::of(&[run(1000); 100]);
        let missed = |case: &&Case| case.verdict == CaseVerdict::Missed;
        let cases = evasion.cases();
        assert!(cases.iter().filter(missed).count() >= 5, "{cases:?}");
        let none = Evasion::of(&[run(0); 100]).cases();
        assert!(none.iter().filter(missed).count() >= 5, "{none:?}");
        // As many as must get away with each number.
        let exact = exact();
        let as_they_must = (0..2000u32).map(|number| {
            let share = f64::from(number) / 2000.0;
            run(exact.iter().take_while(|left| **left > share).count().saturating_sub(1))
        });
        let evasion = Evasion::of(&as_they_must.collect::<Vec<_>>());
        assert_eq!(evasion.cases().iter().find(missed), None);
        let wrong = ForgerRun { is_rightly_accused: false, ..run(0) };
        let accused = Evasion::of(&[wrong]).cases();
        assert!(accused.last().is_some_and(|case| missed(&case)));
    }
}
