//! Random numbers of the simulator.

use core::num::NonZeroUsize;

/// The random generator of the simulator: SplitMix64 (Steele, Lea and Flood, 2014).
///
/// The engine's nodes have a cryptographic generator, as on real sockets. No simulated decision depends on theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// From this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one purpose of this seed: different purposes get different numbers.
    #[must_use]
    pub const fn of(seed: u64, part: u64) -> Self {
        let mut rng = Self(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let first = rng.next();
        Self(first)
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from 1 to `max`.
    pub(crate) fn up_to(&mut self, max: NonZeroUsize) -> usize {
        1 + usize::try_from(self.next() % max.get() as u64).unwrap_or(0)
    }

    /// True with a probability of `per_million` in a million. Zero draws no number.
    pub(crate) const fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.next() % 1_000_000 < per_million as u64
    }

    /// A number from 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }
}
