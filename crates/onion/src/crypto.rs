//! The cryptography of circuits: handshakes, key derivation, relay cells (tor-spec §5).
//!
//! Primitives come from the RustCrypto and dalek crates; what is here is their use in Tor.

mod cgo;
pub mod fast;
pub mod ntor;
pub mod ntor_v3;
mod relay_cell;

pub use cgo::{CgoClientHop, CgoKeys, CgoRelayHop};
pub use relay_cell::{ClientHop, CryptError, Keystream, Layers, RelayHop, RelayLayer};

use crate::cell::relay::RelayFormat;
use alloc::boxed::Box;
use core::fmt;

/// What a circuit handshake yields for one hop: keys of the layer that both sides agreed on.
#[derive(Clone, Debug)]
pub enum LayerKeys {
    /// Of keystreams and running digests.
    Tor1(HopKeys),
    /// Of Counter Galois Onion.
    Cgo(Box<CgoKeys>),
}

/// Bytes of key material, for whatever layer.
const MATERIAL_LEN_MAX: usize = cgo::MATERIAL_LEN;

impl LayerKeys {
    /// Bytes of key material that this layer takes.
    const fn material_len(format: RelayFormat) -> usize {
        match format {
            RelayFormat::V0 => HopKeys::MATERIAL_LEN,
            RelayFormat::V1 => cgo::MATERIAL_LEN,
        }
    }

    /// Cuts derived key material, of which the first bytes count.
    fn from_material(format: RelayFormat, material: &[u8; MATERIAL_LEN_MAX]) -> Self {
        match format {
            RelayFormat::V0 => {
                let Some(material) = material.first_chunk() else {
                    unreachable!("there is enough for whatever layer")
                };
                Self::Tor1(HopKeys::from_material(material))
            }
            RelayFormat::V1 => Self::Cgo(Box::new(CgoKeys::from_material(material))),
        }
    }

    /// The keys of a keystream, if that is what the layer is. With CREATE_FAST and ntor it always is.
    #[must_use]
    pub const fn tor1(&self) -> Option<&HopKeys> {
        match self {
            Self::Tor1(keys) => Some(keys),
            Self::Cgo(_) => None,
        }
    }

    /// How messages lie in cells of the layer.
    #[must_use]
    pub const fn format(&self) -> RelayFormat {
        match self {
            Self::Tor1(_) => RelayFormat::V0,
            Self::Cgo(_) => RelayFormat::V1,
        }
    }
}

impl From<HopKeys> for LayerKeys {
    fn from(keys: HopKeys) -> Self {
        Self::Tor1(keys)
    }
}

impl From<CgoKeys> for LayerKeys {
    fn from(keys: CgoKeys) -> Self {
        Self::Cgo(Box::new(keys))
    }
}

/// What a circuit handshake yields for one hop with a keystream for a layer (tor-spec §5.2).
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
    /// Bytes of key material.
    const MATERIAL_LEN: usize = 72;

    /// Cuts derived key material into the keys, in the order of tor-spec §5.2.
    fn from_material(material: &[u8; Self::MATERIAL_LEN]) -> Self {
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
