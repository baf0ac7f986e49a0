//! Circuit cryptography: handshakes, key derivation, relay cells (tor-spec §5).
//!
//! The primitives come from the RustCrypto and dalek crates. These modules implement their use in Tor.

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

/// The keys of one hop from a circuit handshake, for the negotiated kind of layer.
#[derive(Clone, Debug)]
pub enum LayerKeys {
    /// Keystreams and running digests.
    Tor1(HopKeys),
    /// Counter Galois Onion.
    Cgo(Box<CgoKeys>),
}

/// Maximum length of key material, over all kinds of layers.
const MATERIAL_LEN_MAX: usize = cgo::MATERIAL_LEN;

impl LayerKeys {
    /// The length of key material for this kind of layer.
    const fn material_len(format: RelayFormat) -> usize {
        match format {
            RelayFormat::V0 => HopKeys::MATERIAL_LEN,
            RelayFormat::V1 => cgo::MATERIAL_LEN,
        }
    }

    /// Splits derived key material, of which the first bytes are used.
    fn from_material(format: RelayFormat, material: &[u8; MATERIAL_LEN_MAX]) -> Self {
        match format {
            RelayFormat::V0 => {
                let Some(material) = material.first_chunk() else {
                    unreachable!("the output is long enough for every layer")
                };
                Self::Tor1(HopKeys::from_material(material))
            }
            RelayFormat::V1 => Self::Cgo(Box::new(CgoKeys::from_material(material))),
        }
    }

    /// The keys of a keystream, if the layer is one. With CREATE_FAST and ntor it always is.
    #[must_use]
    pub const fn tor1(&self) -> Option<&HopKeys> {
        match self {
            Self::Tor1(keys) => Some(keys),
            Self::Cgo(_) => None,
        }
    }

    /// The message format in cells of the layer.
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

/// The keys of one hop with a keystream (tor-spec §5.2).
#[derive(Clone)]
pub struct HopKeys {
    /// The seed of the digest in the forward direction.
    pub digest_forward: [u8; 20],
    /// The seed of the digest in the backward direction.
    pub digest_backward: [u8; 20],
    /// The AES-128 key of the forward direction.
    pub key_forward: [u8; 16],
    /// The AES-128 key of the backward direction.
    pub key_backward: [u8; 16],
}

impl HopKeys {
    /// The length of key material.
    const MATERIAL_LEN: usize = 72;

    /// Splits derived key material in the order of tor-spec §5.2.
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

/// The peer's part of a circuit handshake is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFailed {
    /// The handshake.
    pub handshake: &'static str,
    /// The check that failed.
    pub problem: &'static str,
}

impl fmt::Display for HandshakeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handshake failed: {}", self.handshake, self.problem)
    }
}

impl core::error::Error for HandshakeFailed {}
