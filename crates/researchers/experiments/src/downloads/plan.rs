//! The sizes of downloads, and the relays on their paths.

use serde::Serialize;
use std::fmt;

/// The smallest download.
const SMALLEST: u64 = 1024;

/// The positions of our relays on a client's circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Placement {
    CTor,
    Guard,
    Middle,
    Exit,
    AllThree,
}

impl Placement {
    pub(super) const ALL: [Self; 5] =
        [Self::CTor, Self::Guard, Self::Middle, Self::Exit, Self::AllThree];

    /// Whether guard, middle and exit are ours.
    pub(super) const fn ours(self) -> [bool; 3] {
        match self {
            Self::CTor => [false; 3],
            Self::Guard => [true, false, false],
            Self::Middle => [false, true, false],
            Self::Exit => [false, false, true],
            Self::AllThree => [true; 3],
        }
    }

    /// The number of downloads with this placement, of `count` through our relays. C tor relays alone get as many as the last placement.
    pub(super) const fn share_of(self, count: u32) -> u32 {
        let more = match self {
            Self::Guard => 3,
            Self::Middle => 2,
            Self::Exit => 1,
            Self::AllThree | Self::CTor => 0,
        };
        (count + more) / 4
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::CTor => "C tor relays",
            Self::Guard => "our guard",
            Self::Middle => "our middle",
            Self::Exit => "our exit",
            Self::AllThree => "all three ours",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Sizes in bytes in geometric progression, from the smallest to the largest.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are positive and need not be exact"
)]
pub(super) fn sizes(count: u32, largest: u64) -> Vec<u64> {
    let steps = f64::from(count.saturating_sub(1).max(1));
    let factor = largest as f64 / SMALLEST as f64;
    (0..count)
        .map(|step| SMALLEST as f64 * factor.powf(f64::from(step) / steps))
        .map(|len| (len.round() as u64).min(largest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_range_from_the_smallest_to_the_largest() {
        assert_eq!(sizes(3, 1 << 20), [1 << 10, 1 << 15, 1 << 20]);
        assert_eq!(sizes(1, 1 << 20), [1 << 10]);
        let many = sizes(25, 100 << 20);
        assert!(many.is_sorted() && many.last() == Some(&(100 << 20)));
    }

    #[test]
    fn the_placements_of_our_relays_share_all_downloads() {
        for count in 4..110 {
            let ours = Placement::ALL.iter().filter(|placement| **placement != Placement::CTor);
            assert_eq!(ours.map(|placement| placement.share_of(count)).sum::<u32>(), count);
        }
    }
}
