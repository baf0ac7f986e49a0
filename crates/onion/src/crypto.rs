//! The cryptography of circuits: handshakes, key derivation, relay cells (tor-spec §5).
//!
//! Primitives come from the RustCrypto and dalek crates; what is here is their use in Tor.

pub mod fast;
pub mod ntor;
pub mod ntor_v3;
mod relay_cell;

pub use relay_cell::{ClientHop, CryptError, Keystream, Layers, RelayHop};

use core::fmt;

/// What a circuit handshake yields for one hop (tor-spec §5.2).
#[derive(Clone)]
pub struct HopKeys {
    /// Seeds the digest of cells away from the client.
    pub digest_forward: [u8; 20],
    /// Seeds the digest of cells towards the client.
    pub digest_backward: [u8; 20],
    /// AES-128 key of cells away from the client.
    pub key_forward: [u8; 16],
    /// AES-128 key of cells towards the client.
    pub key_backward: [u8; 16],
}

impl HopKeys {
    /// Cuts derived key material into the keys, in the order of tor-spec §5.2.
    fn from_material(material: &[u8; 72]) -> Self {
        let mut rest = &material[..];
        let mut take = |into: &mut [u8]| {
            let (head, tail) = rest.split_at(into.len());
            into.copy_from_slice(head);
            rest = tail;
        };
        let mut keys = Self {
            digest_forward: [0; 20],
            digest_backward: [0; 20],
            key_forward: [0; 16],
            key_backward: [0; 16],
        };
        take(&mut keys.digest_forward);
        take(&mut keys.digest_backward);
        take(&mut keys.key_forward);
        take(&mut keys.key_backward);
        keys
    }
}

impl fmt::Debug for HopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKeys(secret)")
    }
}

/// The peer's half of a circuit handshake does not prove what it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFailed {
    /// Which handshake.
    pub handshake: &'static str,
    /// What does not hold.
    pub problem: &'static str,
}

impl fmt::Display for HandshakeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handshake failed: {}", self.handshake, self.problem)
    }
}

impl core::error::Error for HandshakeFailed {}
