use super::conn::{LinkId, Side};
use core::num::NonZeroUsize;
use onion::Instant;

/// FNV-1a over what is delivered: enough to tell two runs apart, no protection against intent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    pub(super) fn add(&mut self, now: Instant, link: LinkId, side: Side, bytes: &[u8]) {
        self.mix(now.as_nanos());
        self.mix(link.0 * 2 + u64::from(side == Side::Acceptor));
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    const fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    pub(super) const fn get(self) -> u64 {
        self.0
    }
}

/// A small generator for where to cut and what to lose; neither may depend on any other randomness.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from one to `max`.
    pub(super) fn up_to(&mut self, max: NonZeroUsize) -> usize {
        1 + usize::try_from(self.next() % max.get() as u64).unwrap_or(0)
    }

    /// True so many times of a million.
    pub(super) fn falls(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.next() % 1_000_000 < u64::from(per_million)
    }
}
