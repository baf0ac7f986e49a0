//! Issues the certificates of our own relays (cert-spec §2).

use super::{CROSS_CERT_CONTEXT, SIGNED_WITH_KEY, VERSION};
use crate::identity::Ed25519Id;
use crate::keys::{KeyProblem, RsaKey};
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// The key that an Ed25519 certificate certifies (cert-spec §A.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertifiedKey {
    /// An Ed25519 key.
    Ed25519([u8; 32]),
    /// SHA-256 of an X.509 certificate.
    X509Sha256([u8; 32]),
}

/// Issues an Ed25519 certificate (cert-spec §2.1) that expires at this Unix time, rounded up to hours. It names
/// `signer`, if given, whose signature `sign` makes.
pub fn issue_ed25519_cert(
    cert_type: u8,
    key: CertifiedKey,
    expiry_unix_s: u64,
    signer: Option<&[u8; 32]>,
    sign: impl FnOnce(&[u8]) -> [u8; 64],
) -> Vec<u8> {
    let (key_type, key) = match key {
        CertifiedKey::Ed25519(key) => (1, key),
        CertifiedKey::X509Sha256(digest) => (3, digest),
    };
    let mut cert = Vec::from([VERSION, cert_type]);
    cert.extend_from_slice(&expiry_hours(expiry_unix_s).to_be_bytes());
    cert.push(key_type);
    cert.extend_from_slice(&key);
    cert.push(u8::from(signer.is_some()));
    if let Some(signer) = signer {
        // The length, the type, and no flags.
        cert.extend_from_slice(&[0, 32, SIGNED_WITH_KEY, 0]);
        cert.extend_from_slice(signer);
    }
    let signature = sign(&cert);
    cert.extend_from_slice(&signature);
    cert
}

/// Issues the certificate of an Ed25519 identity by an RSA identity (cert-spec §2.3), which expires at this Unix time,
/// rounded up to hours.
///
/// # Errors
/// [`KeyProblem`] if the key cannot sign, which is a bug.
pub fn issue_cross_cert(
    rsa: &RsaKey,
    ed25519: Ed25519Id,
    expiry_unix_s: u64,
) -> Result<Vec<u8>, KeyProblem> {
    let mut cert = ed25519.0.to_vec();
    cert.extend_from_slice(&expiry_hours(expiry_unix_s).to_be_bytes());
    let digest = Sha256::new().chain_update(CROSS_CERT_CONTEXT).chain_update(&cert).finalize();
    let signature = rsa.sign(&digest)?;
    // 128 bytes, by the key's length.
    cert.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
    cert.extend_from_slice(&signature);
    Ok(cert)
}

fn expiry_hours(unix_s: u64) -> u32 {
    u32::try_from(unix_s.div_ceil(3600)).unwrap_or(u32::MAX)
}
