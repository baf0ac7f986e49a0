use core::fmt;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The secret from which a randomised plan is derived.
///
/// It reveals when each relay is measured. So a coordinator keeps a master seed secret, and plans each period by
/// [`of_period`](Self::of_period). A period's seed reveals neither the master seed nor those of other periods. It may
/// be published once the period is over, so that others can verify the plan.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The seed with these 32 bytes, from a cryptographically secure generator.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to be kept secret.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The seed of the period that begins at this time, in Unix seconds, and has this length. A longer period with the
    /// same beginning has another seed, so it stays secret when that of the shorter one is published.
    #[must_use]
    pub fn of_period(&self, begin_unix_s: u64, length_s: u64) -> Self {
        Self(self.derive_for(b"flashflow plan: period", begin_unix_s, length_s))
    }

    /// The contribution of a coordinator with this master seed to the common seed of the period that begins at this time,
    /// in Unix seconds, and has this length. It is the same after a restart: two different contributions would be a lie.
    #[must_use]
    pub fn contribution(&self, begin_unix_s: u64, length_s: u64) -> [u8; 32] {
        self.derive_for(b"flashflow plan: contribution", begin_unix_s, length_s)
    }

    /// A public identifier of the seed, for comparison, which reveals nothing else about it.
    #[must_use]
    pub fn mark(&self) -> [u8; 8] {
        let hash = self.derive(&[b"flashflow plan: mark"]);
        core::array::from_fn(|place| hash[place])
    }

    /// The length is part of the input, unless it is a day.
    fn derive_for(&self, purpose: &[u8], begin_unix_s: u64, length_s: u64) -> [u8; 32] {
        const DAY_S: u64 = 24 * 3600;
        let (begin, length) = (begin_unix_s.to_be_bytes(), length_s.to_be_bytes());
        let parts: [&[u8]; 3] = [purpose, &begin, &length];
        self.derive(if length_s == DAY_S { &parts[..2] } else { &parts })
    }

    /// HMAC-SHA256 with the seed as its key.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.keyed();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    pub(super) fn keyed(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length (RFC 2104)")
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(secret)")
    }
}
