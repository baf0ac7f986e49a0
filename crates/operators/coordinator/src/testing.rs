//! Helpers that several tests share.

use onion::identity::RsaId;
use rand_core::Rng;

/// The identity of the relay with this number.
pub(crate) fn id(number: u16) -> RsaId {
    let mut bytes = [0; 20];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    RsaId(bytes)
}

/// A random number of at least 0 and below 1.
pub(crate) fn uniform(rng: &mut impl Rng) -> f64 {
    f64::from(rng.next_u32()) / 4_294_967_296.0
}
