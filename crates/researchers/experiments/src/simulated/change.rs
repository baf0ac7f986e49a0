//! The difference between the runs of two variants.

use super::{Interval, RunResult, runs};
use std::fmt;

/// The change of a figure from one variant's runs to another's, in percent: the geometric mean over seeds.
/// Runs are compared seed by seed, because a seed determines the network and its users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Over the seeds with which both figures are known, positive and finite.
    pub(crate) percent: Interval,
    /// The number of seeds with which both variants were run.
    pub(crate) seeds: usize,
}

impl Change {
    /// The change by the ratio of each seed, the later value over the first one; `None` for a seed without one of them.
    pub(crate) fn from_ratios(ratios: impl IntoIterator<Item = Option<f64>>) -> Self {
        let ratios: Vec<Option<f64>> = ratios.into_iter().collect();
        // The arithmetic mean of ratios is biased upwards, and inverting the ratios does not invert it. The
        // logarithm of a zero or infinite ratio is not finite, and `Interval` ignores it.
        let log = Interval::of(ratios.iter().flatten().map(|ratio| ratio.ln()));
        let factor = log.mean.exp();
        let percent = Interval {
            mean: (factor - 1.0) * 100.0,
            half_width: log.half_width.map(|half_width| factor * half_width * 100.0),
            count: log.count,
        };
        Self { percent, seeds: ratios.len() }
    }

    /// The change of a figure from the runs of the variant `first` to those of `other`.
    pub(crate) fn between(
        all: &[RunResult],
        first: &str,
        other: &str,
        load: u32,
        figure: impl Fn(&RunResult) -> Option<f64>,
    ) -> Self {
        let counterpart = |run: &RunResult| {
            runs(all, first, load).find(|candidate| candidate.key.seed == run.key.seed)
        };
        let pairs = runs(all, other, load).filter_map(|run| Some((run, counterpart(run)?)));
        Self::from_ratios(pairs.map(|(run, first)| Some(figure(run)? / figure(first)?)))
    }

    /// The mean if every seed contributes to it, otherwise `None`: a seed without a median is the slowest of
    /// all, and the mean of the others would be too low.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.seeds > 0 && self.percent.count == self.seeds).then_some(self.percent.mean)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { percent, seeds } = self;
        if *seeds == 0 {
            return write!(f, "no seed was run with both");
        }
        if percent.count == 0 {
            return write!(f, "no comparison: in each of {seeds} seeds, one of them has no value");
        }
        match percent.half_width {
            Some(half) if percent.mean.abs() > half => {
                write!(f, "{percent:+.1} %, {} seeds", percent.count)?;
            }
            Some(_) => {
                write!(f, "{percent:+.1} %, {} seeds: not significant", percent.count)?;
            }
            None => write!(f, "{percent:+.1} %, one seed: significance unknown")?,
        }
        if percent.count < *seeds {
            write!(f, "; in {} more, one of them has no value", seeds - percent.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with the seeds 1, 2, … and these values of goodput.
    fn results(variant: &str, figures: &[f64]) -> Vec<RunResult> {
        let run = |(seed, figure): (u64, &f64)| RunResult {
            goodput_mbit_per_s: *figure,
            ..RunResult::blank(variant, seed)
        };
        (1..).zip(figures).map(run).collect()
    }

    fn change(first: &[f64], other: &[f64]) -> Change {
        let all = [results("first", first), results("other", other)].concat();
        let figure =
            |run: &RunResult| (!run.goodput_mbit_per_s.is_nan()).then_some(run.goodput_mbit_per_s);
        Change::between(&all, "first", "other", 100, figure)
    }

    #[test]
    fn doubling_and_halving_cancel_out() {
        let both = change(&[1.0, 1.0, 4.0], &[2.0, 0.5, 4.0]);
        assert!(both.mean().is_some_and(|mean| mean.abs() < 1e-9), "{both:?}");
        assert!(both.to_string().contains("not significant"), "{both}");
        let up = change(&[2.0, 2.0, 2.0], &[2.2, 2.2, 2.2]);
        assert_eq!(up.to_string(), "+10.0 ± 0.0 %, 3 seeds");
        let down = change(&[2.2, 2.2, 2.2], &[2.0, 2.0, 2.0]);
        assert!(down.mean().is_some_and(|mean| (mean + 100.0 / 11.0).abs() < 1e-9), "{down:?}");
    }

    #[test]
    fn a_seed_without_a_finite_figure_leaves_no_mean() {
        for (first, other) in [
            ([f64::INFINITY, 1.0], [1.0, 1.0]),
            ([1.0, 1.0], [f64::INFINITY, 1.0]),
            ([f64::NAN, 1.0], [1.0, 1.0]),
        ] {
            let incomplete = change(&first, &other);
            assert_eq!(
                (incomplete.mean(), incomplete.percent.count, incomplete.seeds),
                (None, 1, 2),
                "{first:?} {other:?}"
            );
            assert!(
                incomplete.to_string().ends_with("; in 1 more, one of them has no value"),
                "{incomplete}"
            );
        }
        assert_eq!(change(&[], &[1.0]).to_string(), "no seed was run with both");
    }
}
