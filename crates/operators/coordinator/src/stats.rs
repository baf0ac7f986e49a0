//! Order statistics, defined once.

use alloc::vec::Vec;
use onion::Rate;

/// A percentile from 1 to 100, by the nearest-rank method: of *n* values the *p*-th percentile is
/// the ⌈p·n/100⌉-th smallest. It is always one of the values, never between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u8);

impl Percentile {
    /// The first quartile.
    pub const P25: Self = Self(25);
    /// The third quartile, which is also the guess for a new relay (§4.2).
    pub const P75: Self = Self(75);

    /// The `p`-th percentile; `None` unless `p` is 1 to 100.
    #[must_use]
    pub const fn new(p: u8) -> Option<Self> {
        if p >= 1 && p <= 100 { Some(Self(p)) } else { None }
    }

    /// This percentile of `sorted`, which ascends; `None` if it is empty.
    #[must_use]
    pub fn of<T: Copy>(self, sorted: &[T]) -> Option<T> {
        let rank = (sorted.len() * usize::from(self.0)).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).copied()
    }
}

/// The median of `sorted`, which ascends; `None` if it is empty.
///
/// For an even count it is the mean of the two middle values, rounded down.
#[must_use]
pub fn median(sorted: &[u64]) -> Option<u64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| u64::midpoint(*lower, upper))
}

/// The median of rates, in whole bytes per second; `None` without any.
#[must_use]
pub fn median_rate(rates: impl IntoIterator<Item = Rate>) -> Option<Rate> {
    let mut bytes: Vec<u64> = rates.into_iter().map(Rate::as_byte_per_s).collect();
    bytes.sort_unstable();
    median(&bytes).map(Rate::from_byte_per_s)
}

/// The spread of values: bytes per second, in a measurement. Quartiles are [`Percentile`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The smallest value.
    pub min: u64,
    /// The first quartile.
    pub lower_quartile: u64,
    /// The third quartile.
    pub upper_quartile: u64,
    /// The largest value.
    pub max: u64,
}

impl Spread {
    /// The spread of `sorted`, which ascends; `None` if it is empty.
    #[must_use]
    pub fn from_sorted(sorted: &[u64]) -> Option<Self> {
        Some(Self {
            min: *sorted.first()?,
            lower_quartile: Percentile::P25.of(sorted)?,
            upper_quartile: Percentile::P75.of(sorted)?,
            max: *sorted.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        assert_eq!(Percentile::P75.of(&[10, 20, 30, 40]), Some(30));
        assert_eq!(Percentile::P75.of(&[10, 20, 30, 40, 50]), Some(40));
        assert_eq!(Percentile::P25.of(&[7]), Some(7));
        assert_eq!(Percentile::P25.of::<u64>(&[]), None);
        assert_eq!(Percentile::new(100).unwrap().of(&[1, 2, 3]), Some(3));
        assert_eq!(Percentile::new(1).unwrap().of(&[1, 2, 3]), Some(1));
        assert!(Percentile::new(0).is_none() && Percentile::new(101).is_none());
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1, 2, 9]), Some(2));
        assert_eq!(median(&[1, 2, 5, 9]), Some(3), "3.5, rounded down");
        assert_eq!(median(&[u64::MAX, u64::MAX]), Some(u64::MAX), "no overflow");
        let rates = [30, 10, 20, 60].map(Rate::from_byte_per_s);
        assert_eq!(median_rate(rates), Some(Rate::from_byte_per_s(25)));
        assert_eq!(median_rate([]), None);
    }
}
