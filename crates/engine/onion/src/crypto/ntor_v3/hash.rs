//! SHA-3 as used in the handshake: with a tweak as prefix that separates its uses (proposal 332 §A.1).

use sha3::digest::{ExtendableOutput, FixedOutput, Update};
use sha3::{Sha3_256, Shake256, Shake256Reader};

/// The name of the protocol.
pub(super) const PROTOCOL: &[u8] = b"ntor3-curve25519-sha3_256-1";

/// The use of a hash.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tweak {
    MessageKeys,
    MessageMac,
    Seed,
    Verify,
    CircuitKeys,
    Authenticator,
}

impl Tweak {
    const fn suffix(self) -> &'static [u8] {
        match self {
            Self::MessageKeys => b":kdf_phase1",
            Self::MessageMac => b":msg_mac",
            Self::Seed => b":key_seed",
            Self::Verify => b":verify",
            Self::CircuitKeys => b":kdf_final",
            Self::Authenticator => b":auth_final",
        }
    }
}

/// Absorbs the parts of a hash's input.
pub(super) struct Input<H>(H);

impl<H: Update + Default> Input<H> {
    fn tweaked(tweak: Tweak) -> Self {
        let mut input = Self(H::default());
        let suffix = tweak.suffix();
        input.add_len(PROTOCOL.len() + suffix.len());
        input.add(PROTOCOL);
        input.add(suffix);
        input
    }

    fn add_len(&mut self, len: usize) {
        self.0.update(&(len as u64).to_be_bytes());
    }

    /// Adds a part of fixed length.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// Adds a part with its length as prefix.
    pub(super) fn add_sized(&mut self, part: &[u8]) {
        self.add_len(part.len());
        self.add(part);
    }
}

/// The hash of what `fill` adds.
pub(super) fn hash(tweak: Tweak, fill: impl Fn(&mut Input<Sha3_256>)) -> [u8; 32] {
    let mut input = Input::tweaked(tweak);
    fill(&mut input);
    input.0.finalize_fixed().into()
}

/// An endless stream of key material, derived from what `fill` adds.
pub(super) fn key_stream(tweak: Tweak, fill: impl Fn(&mut Input<Shake256>)) -> Shake256Reader {
    let mut input = Input::tweaked(tweak);
    fill(&mut input);
    input.0.finalize_xof()
}
