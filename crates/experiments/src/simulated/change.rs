//! How runs of one variant differ from those of another.

use super::{Interval, Played, over_seeds, runs};
use std::fmt;

/// How something that runs of a variant have differs from what those of the first one have, in percent of the latter and seed by seed: runs of a seed have the same network and the same users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Over the seeds with which both have it.
    pub(crate) percent: Interval,
    /// With which both were played.
    pub(crate) seeds: usize,
}

impl Change {
    pub(crate) fn of(
        all: &[Played],
        (first, other): (&str, &str),
        load: u32,
        what: impl Fn(&Played) -> Option<f64>,
    ) -> Self {
        let beside = |with: &Played| {
            runs(all, first, load).find(|without| without.point.seed == with.point.seed)
        };
        let change = |with: &Played| Some((what(with)? / what(beside(with)?)? - 1.0) * 100.0);
        let percent = over_seeds(all, (other, load), change);
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
