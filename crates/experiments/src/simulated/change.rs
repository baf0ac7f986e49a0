//! How runs of one variant differ from those of another.

use super::{Interval, Played, over_seeds, runs};
use std::fmt;

/// How something that runs of a variant have differs from what those of the first one have, in percent of the latter and seed by seed: runs of a seed have the same network and the same users.
/// The mean is the geometric one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Over the seeds with which both have it, more than nothing and less than never.
    pub(crate) percent: Interval,
    /// With which both were played.
    pub(crate) seeds: usize,
}

impl Change {
    pub(crate) fn of(
        all: &[Played],
        first: &str,
        other: &str,
        load: u32,
        what: impl Fn(&Played) -> Option<f64>,
    ) -> Self {
        let beside = |with: &Played| {
            runs(all, first, load).find(|without| without.point.seed == with.point.seed)
        };
        // By logarithms: a mean of ratios is too high by how much they vary, and that of the inverse ones is not its inverse. Of what is nothing or never there is none.
        let ratio = |with: &Played| Some((what(with)? / what(beside(with)?)?).ln());
        let log = over_seeds(all, other, load, ratio);
        let factor = log.mean.exp();
        let percent = Interval {
            mean: (factor - 1.0) * 100.0,
            half_width: log.half_width.map(|it| factor * it * 100.0),
            count: log.count,
        };
        let seeds = runs(all, other, load).filter(|with| beside(with).is_some()).count();
        Self { percent, seeds }
    }

    /// The mean, if it is one of all seeds: one with which half never came is the slowest of all, and what is left are the fast ones.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.seeds > 0 && self.percent.count == self.seeds).then_some(self.percent.mean)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { percent, seeds } = self;
        if *seeds == 0 {
            return write!(f, "not played with both");
        }
        if percent.count == 0 {
            return write!(f, "with none of {seeds} seeds have both one");
        }
        match percent.half_width {
            Some(half) if percent.mean.abs() > half => {
                write!(f, "{percent:+.1} %, {} seeds", percent.count)?;
            }
            Some(_) => {
                write!(f, "{percent:+.1} %, {} seeds: no difference is shown", percent.count)?;
            }
            None => write!(f, "{percent:+.1} %, one seed: it may be chance")?,
        }
        if percent.count < *seeds {
            write!(f, "; of {seeds}: with the others one has none")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with the seeds 1, 2, …, whose figure is what they have sent.
    fn played(variant: &str, figures: &[f64]) -> Vec<Played> {
        let run = |(seed, figure): (u64, &f64)| Played {
            goodput_mbit_per_s: *figure,
            ..Played::blank(variant, seed)
        };
        (1..).zip(figures).map(run).collect()
    }

    fn change(first: &[f64], other: &[f64]) -> Change {
        let all = [played("first", first), played("other", other)].concat();
        let figure =
            |it: &Played| (!it.goodput_mbit_per_s.is_nan()).then_some(it.goodput_mbit_per_s);
        Change::of(&all, "first", "other", 100, figure)
    }

    #[test]
    fn twice_and_half_as_much_are_no_change() {
        let it = change(&[1.0, 1.0, 4.0], &[2.0, 0.5, 4.0]);
        assert!(it.mean().is_some_and(|mean| mean.abs() < 1e-9), "{it:?}");
        assert!(it.to_string().contains("no difference is shown"), "{it}");
        let up = change(&[2.0, 2.0, 2.0], &[2.2, 2.2, 2.2]);
        assert_eq!(up.to_string(), "+10.0 ± 0.0 %, 3 seeds");
        let down = change(&[2.2, 2.2, 2.2], &[2.0, 2.0, 2.0]);
        assert!(down.mean().is_some_and(|mean| (mean + 100.0 / 11.0).abs() < 1e-9), "{down:?}");
    }

    #[test]
    fn a_seed_whose_downloads_never_came_is_not_a_gain_of_all_there_is() {
        for (first, other) in [
            ([f64::INFINITY, 1.0], [1.0, 1.0]),
            ([1.0, 1.0], [f64::INFINITY, 1.0]),
            ([f64::NAN, 1.0], [1.0, 1.0]),
        ] {
            let it = change(&first, &other);
            assert_eq!(
                (it.mean(), it.percent.count, it.seeds),
                (None, 1, 2),
                "{first:?} {other:?}"
            );
            assert!(it.to_string().ends_with("; of 2: with the others one has none"), "{it}");
        }
        assert_eq!(change(&[], &[1.0]).to_string(), "not played with both");
    }
}
