//! A relay's identity: its two long-term keys, and what it needs to prove them.

use alloc::vec::Vec;
use core::fmt;
use ed25519_dalek::{Signer, SigningKey};
use x25519_dalek::{PublicKey, StaticSecret};

pub use ::identity::{Ed25519Id, IdError, RsaId};

/// The expected or proved identities of a relay.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayIds {
    /// Its RSA identity.
    pub rsa: RsaId,
    /// Its Ed25519 identity, if known.
    pub ed25519: Option<Ed25519Id>,
}

/// A relay's own keys and certificates, for link handshakes and circuit handshakes.
///
/// The shell creates certificates, which requires a calendar and slow key generation; the engine only presents
/// them.
#[derive(Clone)]
pub struct OwnIdentity {
    /// SHA-1 of our RSA identity key.
    pub rsa: RsaId,
    /// SHA-256 of our RSA identity key.
    pub rsa_sha256: [u8; 32],
    /// Our Ed25519 identity key.
    pub ed25519: Ed25519Id,
    /// CERTS type 2: the RSA identity key in X.509.
    pub rsa_identity_cert: Vec<u8>,
    /// CERTS type 4: the Ed25519 signing key.
    pub signing_cert: Vec<u8>,
    /// CERTS type 5: the TLS certificate's digest.
    pub tls_link_cert: Vec<u8>,
    /// CERTS type 6: the link authentication key.
    pub authenticate_cert: Vec<u8>,
    /// CERTS type 7: the Ed25519 identity, certified by the RSA identity.
    pub rsa_cross_cert: Vec<u8>,
    /// Seed of the link authentication key.
    pub authenticate_seed: [u8; 32],
    /// The secret ntor onion key.
    pub onion_secret: [u8; 32],
    /// The previous one, as long as clients may not know the current one.
    pub previous_onion_secret: Option<[u8; 32]>,
}

impl OwnIdentity {
    /// Both identities.
    #[must_use]
    pub const fn ids(&self) -> RelayIds {
        RelayIds { rsa: self.rsa, ed25519: Some(self.ed25519) }
    }

    /// SHA-256 of the TLS certificate that [`tls_link_cert`](Self::tls_link_cert) certifies; `None` if that is
    /// malformed.
    #[must_use]
    pub fn tls_certificate_sha256(&self) -> Option<[u8; 32]> {
        // After version, type, expiry and key type (cert-spec §2.1).
        self.tls_link_cert.get(7..39)?.try_into().ok()
    }

    /// The ntor onion key.
    #[must_use]
    pub fn onion_key(&self) -> [u8; 32] {
        *PublicKey::from(&self.onion_secret()).as_bytes()
    }

    /// The secret ntor onion key.
    #[must_use]
    pub fn onion_secret(&self) -> StaticSecret {
        StaticSecret::from(self.onion_secret)
    }

    /// All secret ntor onion keys that clients may use, the current one first.
    pub fn onion_secrets(&self) -> impl Iterator<Item = StaticSecret> {
        let all = [Some(self.onion_secret), self.previous_onion_secret];
        all.into_iter().flatten().map(StaticSecret::from)
    }

    /// Signs an AUTHENTICATE body with the link authentication key.
    pub(crate) fn sign_authentication(&self, body: &[u8]) -> [u8; 64] {
        SigningKey::from_bytes(&self.authenticate_seed).sign(body).to_bytes()
    }
}

impl fmt::Debug for OwnIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnIdentity({})", self.rsa)
    }
}
