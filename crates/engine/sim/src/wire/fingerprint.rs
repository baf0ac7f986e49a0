use super::conn::{LinkId, Side};
use onion::Instant;

/// FNV-1a over everything delivered: sufficient to distinguish runs, not cryptographic.
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
