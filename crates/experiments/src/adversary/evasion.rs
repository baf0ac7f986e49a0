//! How many forged answers come back before one is checked: many forgers, in virtual time.

use super::Scene;
use crate::error::Error;
use crate::telling::tell;
use lab::echo_liars::{ForgerRun, Forgers};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, Role, Series};
use std::num::NonZeroU32;

/// One cell in so many is checked (proposal 316, appendix A).
const CHECK_ONE_IN: NonZeroU32 = NonZeroU32::MIN.saturating_add(124);

/// Share of the answers that are forged: few in each bucket of which one is checked, since several
/// there would be found out a little sooner than (1−p)^k says.
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
    /// Forgers that got away with so many.
    evaded: u32,
    share: f64,
    predicted: f64,
    interval: (f64, f64),
}

impl Evasion {
    /// Plays all forgers; `None` if the user has had enough.
    pub(super) fn play(scene: &Scene<'_>) -> Result<Option<Self>, Error> {
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
        evasion.cases().iter().for_each(|case| tell(case, scene.output));
        Ok(Some(evasion))
    }

    fn of(all: &[ForgerRun]) -> Self {
        let count = |is_it: &dyn Fn(&ForgerRun) -> bool| {
            u32::try_from(all.iter().filter(|run| is_it(run)).count()).unwrap_or(u32::MAX)
        };
        let runs = count(&|_| true);
        let points = FORGED.iter().map(|forged| {
            let evaded = count(&|run| run.evaded >= *forged as usize);
            let (evasions, of) = (f64::from(evaded), f64::from(runs));
            let interval = interval(evasions, of);
            Point {
                forged: *forged,
                evaded,
                share: evasions / of,
                predicted: predicted(*forged),
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
        let case = Case::new("forgers: nobody is accused of an honest answer", None, None);
        let verdict = if is_right { CaseVerdict::Held } else { CaseVerdict::Missed };
        cases.push(case.ended(verdict, accused).column("kind", "evasion"));
        cases
    }

    fn case(&self, point: &Point) -> Case {
        let Point { forged, evaded, share, predicted, interval: (low, high) } = *point;
        let verdict = if low <= predicted { CaseVerdict::Held } else { CaseVerdict::Missed };
        let than = if high < predicted { "; fewer than predicted, which does no harm" } else { "" };
        Case::new(format!("forgers: {forged} forged answers"), None, None)
            .ended(
                verdict,
                format!(
                    "{evaded} of {} got away with it: {share:.4}, between {low:.4} and {high:.4}; \
                     (1-p)^k is {predicted:.4}{than}",
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
    }

    /// What was found, in a sentence.
    pub(super) fn answer(&self) -> String {
        let as_predicted = self.points.iter().filter(|point| point.interval.0 <= point.predicted);
        format!(
            "Of {} forgers no more got away than (1-p)^k says, for {} of {} numbers k.",
            self.runs,
            as_predicted.count(),
            self.points.len()
        )
    }

    /// The evasion rate beside what the paper says.
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
    fn too_many_that_get_away_are_a_miss() {
        let run = |evaded| ForgerRun { evaded, caught_at: Some(9), is_rightly_accused: true };
        let evasion = Evasion::of(&[run(1000); 100]);
        let missed = |case: &&Case| case.verdict == CaseVerdict::Missed;
        let cases = evasion.cases();
        assert!(cases.iter().filter(missed).count() >= 5, "{cases:?}");
        let none = Evasion::of(&[run(0); 100]).cases();
        assert_eq!(none.iter().find(missed), None);
        let wrong = ForgerRun { is_rightly_accused: false, ..run(0) };
        assert_eq!(Evasion::of(&[wrong]).cases().iter().filter(missed).count(), 1);
    }
}
