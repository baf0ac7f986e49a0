//! Durations with right censoring: some had not ended at the last observation.

use std::ops::RangeInclusive;

/// Durations of which some are only known to exceed a value. The median of the ended ones would be biased
/// towards short ones, since long ones are those that have not ended. Estimated after Kaplan and Meier (1958).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// Infinite for failures. Sorted.
    over_s: Vec<f64>,
    /// Sorted.
    longer_than_s: Vec<f64>,
}

/// A range of durations that nearly no transfer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// The share of durations up to its begin.
    pub share: f64,
    /// The longest of these, in seconds.
    pub from_s: f64,
    /// The shortest duration beyond, in seconds.
    pub until_s: f64,
}

impl Plateau {
    fn width_s(&self) -> f64 {
        self.until_s - self.from_s
    }
}

impl Waits {
    /// Ended durations in seconds, infinite for failures; and censored ones. NaN is ignored.
    #[must_use]
    pub fn new(mut over_s: Vec<f64>, mut longer_than_s: Vec<f64>) -> Self {
        for times in [&mut over_s, &mut longer_than_s] {
            times.retain(|time| !time.is_nan());
            times.sort_by(f64::total_cmp);
        }
        Self { over_s, longer_than_s }
    }

    /// The union of several sets.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Self {
        let (mut over_s, mut longer_than_s) = (Vec::new(), Vec::new());
        for mut waits in all {
            over_s.append(&mut waits.over_s);
            longer_than_s.append(&mut waits.longer_than_s);
        }
        Self::new(over_s, longer_than_s)
    }

    /// For each ended duration, the share that is at most as long. It ends below 1 if some fail, or if the
    /// longest was censored.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let mut left = self.over_s.len() + self.longer_than_s.len();
        let mut longer = self.longer_than_s.iter().peekable();
        let mut share_longer = 1.0;
        let mut points = Vec::new();
        for same in self.over_s.chunk_by(|a, b| a == b).filter(|same| same[0].is_finite()) {
            // A censored duration of the same length might have been longer.
            while longer.next_if(|duration| **duration < same[0]).is_some() {
                left -= 1;
            }
            share_longer *= 1.0 - same.len() as f64 / left as f64;
            left -= same.len();
            points.push((same[0], 1.0 - share_longer));
        }
        points
    }

    /// The duration that this share does not exceed, from 0 to 1: the mean of two if both qualify. Infinite if
    /// more than the rest fail for certain; `None` if too few have ended.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        // Shares are products of many fractions.
        const ROUNDING: f64 = 1e-9;
        let distribution = self.distribution();
        let place = distribution.partition_point(|(_, reached)| *reached < share - ROUNDING);
        let Some((time, reached)) = distribution.get(place) else {
            let never = self.never(distribution.last());
            return (never > 0.0 && never >= 1.0 - share - ROUNDING).then_some(f64::INFINITY);
        };
        if *reached > share + ROUNDING || *reached > 1.0 - ROUNDING {
            return Some(*time);
        }
        let is_all = self.never(distribution.last()) > 1.0 - reached - ROUNDING;
        let next = distribution.get(place + 1).map(|point| point.0);
        let next = next.or_else(|| is_all.then_some(f64::INFINITY));
        next.map(|next| f64::midpoint(*time, next))
    }

    /// The widest gap of the distribution next to its middle, if there is one: a median in or next to it is between two groups, and where
    /// exactly is chance.
    #[must_use]
    pub fn plateau(&self) -> Option<Plateau> {
        // Gaps between fewer durations are wide by chance.
        const DURATIONS_MIN: usize = 100;
        const MIDDLE: RangeInclusive<f64> = 0.4..=0.6;
        // Within a gap, the share may rise by this much.
        const RISE_MAX: f64 = 0.01;
        // Part of the median that a gap exceeds.
        const WIDTH_MIN: f64 = 0.1;
        let (distribution, median) = (self.distribution(), self.median()?);
        let mut start = 0;
        let mut widest: Option<Plateau> = None;
        for (before, (until_s, _)) in distribution.windows(2).map(|two| (two[0].1, two[1])) {
            while before - distribution[start].1 > RISE_MAX {
                start += 1;
            }
            let (from_s, share) = distribution[start];
            let gap = Plateau { share, from_s, until_s };
            if MIDDLE.contains(&share) && widest.is_none_or(|other| other.width_s() < gap.width_s())
            {
                widest = Some(gap);
            }
        }
        let is_enough = self.over_s.len() >= DURATIONS_MIN;
        widest.filter(|gap| is_enough && gap.width_s() > WIDTH_MIN * median)
    }

    /// See [`quantile`](Self::quantile).
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// The share that never ends, if everything still running after the last end does end.
    #[expect(clippy::cast_precision_loss, reason = "numbers of downloads")]
    fn never(&self, last: Option<&(f64, f64)>) -> f64 {
        let (time, reached) = last.copied().unwrap_or_default();
        let fail = self.over_s.len() - self.over_s.partition_point(|duration| duration.is_finite());
        let open = self.longer_than_s.len()
            - self.longer_than_s.partition_point(|duration| *duration < time);
        if fail == 0 { 0.0 } else { (1.0 - reached) * fail as f64 / (fail + open) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_near(found: &[(f64, f64)], expected: &[(f64, f64)]) {
        let is_near = |(one, other): (&(f64, f64), &(f64, f64))| {
            one.0 == other.0 && (one.1 - other.1).abs() < 5e-4
        };
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(is_near),
            "{found:?} and not {expected:?}"
        );
    }

    /// Weeks to relapse of 21 leukaemia patients under 6-mercaptopurine (Freireich 1963, in every textbook):
    /// the shares there are 0.857 at 6, 0.807 at 7, 0.753 at 10, 0.690 at 13, 0.627 at 16, 0.538 at 22, 0.448
    /// at 23.
    #[test]
    fn the_estimate_matches_the_textbook_example() {
        let relapsed = vec![6.0, 6.0, 6.0, 7.0, 10.0, 13.0, 16.0, 22.0, 23.0];
        let well = vec![6.0, 9.0, 10.0, 11.0, 17.0, 19.0, 20.0, 25.0, 32.0, 32.0, 34.0, 35.0];
        let waits = Waits::new(relapsed, well);
        let shares = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448];
        let times = [6.0, 7.0, 10.0, 13.0, 16.0, 22.0, 23.0];
        let expected: Vec<(f64, f64)> =
            times.into_iter().zip(shares.map(|share| 1.0 - share)).collect();
        assert_near(&waits.distribution(), &expected);
        assert_eq!(waits.median(), Some(23.0));
        assert_eq!(waits.quantile(0.95), None, "no patient was observed for so long");
    }

    #[test]
    fn censored_downloads_raise_the_median_and_failed_ones_make_it_infinite() {
        let over = vec![1.0, 2.0, 3.0];
        assert_eq!(Waits::new(over.clone(), vec![]).median(), Some(2.0));
        assert_eq!(Waits::new(over.clone(), vec![2.5]).median(), Some(2.5));
        assert_eq!(Waits::new(over.clone(), vec![0.5]).median(), Some(2.0), "seen too shortly");
        let with = |failed: usize, under_way: Vec<f64>| {
            let failed = std::iter::repeat_n(f64::INFINITY, failed);
            Waits::new(over.iter().copied().chain(failed).collect(), under_way)
        };
        assert_eq!(with(1, vec![]).median(), Some(2.5));
        assert_eq!(with(4, vec![]).median(), Some(f64::INFINITY));
        assert_eq!(with(4, vec![5.0]).median(), Some(f64::INFINITY), "whether it completes or not");
        assert_eq!(with(3, vec![5.0]).median(), None, "it is the one in the middle");
        assert_eq!(with(99, vec![0.1]).median(), Some(f64::INFINITY));
        assert_eq!(with(1, vec![]).quantile(0.75), Some(f64::INFINITY), "between 3 and never");
        assert_eq!(Waits::new(over.clone(), vec![]).quantile(1.0), Some(3.0));
        assert_eq!(Waits::new(over.clone(), vec![9.0]).quantile(1.0), None);
        assert_eq!(Waits::default().median(), None);
    }

    #[test]
    fn a_median_between_two_groups_is_recognised() {
        let group = |from: f64, count: u32| (0..count).map(move |n| from + f64::from(n) * 1e-3);
        let two: Vec<f64> = group(2.0, 102).chain([2.5]).chain(group(2.9, 98)).collect();
        let plateau = Waits::new(two.clone(), Vec::new()).plateau().expect("two groups");
        // One in the gap changes nothing, and neither does one at its edge.
        assert!((2.099..=2.101).contains(&plateau.from_s), "{plateau:?}");
        assert!((2.9..2.903).contains(&plateau.until_s), "{plateau:?}");
        assert!((plateau.share - 0.5).abs() < 0.02, "{plateau:?}");
        let third = group(2.0, 60).chain(group(2.9, 140)).collect();
        assert_eq!(Waits::new(third, Vec::new()).plateau(), None, "the median is in a group");
        let near = group(2.0, 100).chain(group(2.2, 100)).collect();
        assert_eq!(Waits::new(near, Vec::new()).plateau(), None, "a tenth of the median");
        let few = two.into_iter().step_by(3).collect();
        assert_eq!(Waits::new(few, Vec::new()).plateau(), None, "chance");
        // Exponential times have long gaps only among the longest.
        let smooth = (1..200).map(|n| -(f64::from(n) / 200.0).ln()).collect();
        assert_eq!(Waits::new(smooth, Vec::new()).plateau(), None);
    }

    proptest! {
        #[test]
        fn without_censoring_it_is_the_ordinary_median(
            times in proptest::collection::vec(1u8..20, 1..40),
        ) {
            let mut sorted: Vec<f64> = times.iter().copied().map(f64::from).collect();
            let waits = Waits::new(sorted.clone(), Vec::new());
            sorted.sort_by(f64::total_cmp);
            let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
            prop_assert_eq!(waits.median(), Some(f64::midpoint(lower, upper)));
        }
    }

    /// For short and long runs alike: the estimates agree with those of an endless run, as far as they exist.
    #[test]
    fn shorter_runs_agree_with_longer_ones() {
        // Downloads of 1 to 11 s, one begun in each thousandth of a run's first three seconds, in an order
        // without a pattern.
        let of = |n: u32| (f64::from(n) / 1000.0, f64::from(n * 1361 % 3000) / 300.0 + 1.0);
        let all: Vec<(f64, f64)> = (0..3000).map(of).collect();
        for end in [4.0, 6.0, 7.5, 9.0] {
            let is_over = |download: &&(f64, f64)| download.0 + download.1 <= end;
            let over: Vec<f64> = all.iter().filter(is_over).map(|download| download.1).collect();
            let open = all
                .iter()
                .filter(|download| !is_over(download))
                .map(|download| end - download.0)
                .collect();
            let waits = Waits::new(over.clone(), open);
            // Those that only the first few downloads could determine are omitted.
            let shares = waits.distribution().into_iter().filter(|point| point.0 < end - 0.5);
            for (time, share) in shares.step_by(50) {
                let truth = (time - 1.0) / 10.0;
                assert!((share - truth).abs() < 0.02, "{share}, not {truth}, at {time} s of {end}");
            }
            // Completed ones were the fast ones: the median is 6 s.
            let naive = Waits::new(over, Vec::new()).median().expect("some");
            assert!(naive < 5.0, "{naive} s");
            assert_eq!(waits.median().is_some(), end > 6.5, "{waits:?}");
        }
    }
}
