mod issue;

pub use issue::{CertifiedKey, issue_cross_cert, issue_ed25519_cert};

use crate::cell::msg::{Certs, cert_type};
use crate::cell::{Malformed, Reader};
use crate::identity::{Ed25519Id, RelayIds, RsaId};
use crate::keys::{RSA_BITS, rsa_id};
use core::fmt;
use ed25519_dalek::{Signature, VerifyingKey};
use rsa::pkcs1::DecodeRsaPublicKey;
use rsa::traits::PublicKeyParts;
use rsa::{Pkcs1v15Sign, RsaPublicKey};
use sha2::{Digest, Sha256};
use x509_cert::der::Decode;

/// A relay's identities, proved by its certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The RSA and Ed25519 identities.
    pub ids: RelayIds,
    /// SHA-256 of the RSA identity key, used in link authentication.
    pub rsa_sha256: [u8; 32],
    /// The Ed25519 identity.
    pub ed25519: Ed25519Id,
}

/// Why certificates do not prove an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertError {
    /// A required certificate is missing.
    Missing {
        /// Its type in the CERTS cell.
        cert_type: u8,
    },
    /// The encoding is malformed.
    Malformed(Malformed),
    /// A certificate is invalid.
    Invalid {
        /// Its type in the CERTS cell.
        cert_type: u8,
        /// The check that failed.
        problem: &'static str,
    },
    /// A certificate is not valid at this time: the peer's clock or our own may be wrong.
    NotValidNow {
        /// Its type in the CERTS cell.
        cert_type: u8,
        /// Whether it has expired, or is not valid yet.
        problem: &'static str,
    },
}

impl fmt::Display for CertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { cert_type } => write!(f, "no certificate of type {cert_type}"),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Invalid { cert_type, problem } | Self::NotValidNow { cert_type, problem } => {
                write!(f, "certificate of type {cert_type}: {problem}")
            }
        }
    }
}

impl core::error::Error for CertError {}

impl From<Malformed> for CertError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Verifies a responder's CERTS cell (tor-spec §4.2), given the SHA-256 of its TLS certificate and the Unix
/// time in seconds.
///
/// The chain: RSA identity certifies the Ed25519 identity (type 7), which certifies a signing key
/// (type 4), which certifies the TLS certificate (type 5).
///
/// # Errors
/// [`CertError`] names the missing or invalid certificate.
pub fn verify_responder_certs(
    certs: &Certs<'_>,
    tls_cert_sha256: &[u8; 32],
    unix_time_s: u64,
) -> Result<PeerIdentity, CertError> {
    let (peer, certified) = verify_chain(certs, cert_type::ED25519_TLS_LINK, unix_time_s)?;
    if certified != *tls_cert_sha256 {
        let cert_type = cert_type::ED25519_TLS_LINK;
        let problem = "is for another TLS certificate: the connection is intercepted";
        return Err(CertError::Invalid { cert_type, problem });
    }
    Ok(peer)
}

/// Verifies an initiator's CERTS cell (tor-spec §4.2), given the Unix time in seconds. Returns the claimed
/// identities, and the key that signs AUTHENTICATE.
///
/// Anybody can send another relay's certificates: without that signature they prove nothing.
///
/// The chain: RSA identity certifies the Ed25519 identity (type 7), which certifies a signing key
/// (type 4), which certifies the key for link authentication (type 6).
///
/// # Errors
/// [`CertError`] names the missing or invalid certificate.
pub fn verify_initiator_certs(
    certs: &Certs<'_>,
    unix_time_s: u64,
) -> Result<(PeerIdentity, [u8; 32]), CertError> {
    verify_chain(certs, cert_type::ED25519_AUTHENTICATE, unix_time_s)
}

/// Verifies a family certificate: the family key certifies that the relay with this Ed25519 identity is a
/// member (proposal 321, cert-spec §2.1), at this Unix time in seconds. Returns the family's public key, which
/// is its name.
///
/// # Errors
/// [`CertError::Malformed`], or [`CertError::Invalid`] with the failed check. The sender is to blame.
pub fn verify_family_cert(
    cert: &[u8],
    identity: &Ed25519Id,
    unix_time_s: u64,
) -> Result<[u8; 32], CertError> {
    let cert = Ed25519Cert::parse(cert_type::FAMILY, cert)?;
    if cert.certified_key != identity.0 {
        return Err(cert.invalid("is for another relay"));
    }
    let family = cert.signed_with.ok_or(cert.invalid("does not name the family's key"))?;
    cert.verify(&family, unix_time_s)?;
    Ok(family)
}

/// Verifies the chain from the RSA identity to the certificate of type `last`. Returns the identities, and the
/// key or digest that that certificate certifies.
fn verify_chain(
    certs: &Certs<'_>,
    last: u8,
    unix_time_s: u64,
) -> Result<(PeerIdentity, [u8; 32]), CertError> {
    let get = |cert_type| certs.get(cert_type).ok_or(CertError::Missing { cert_type });
    let rsa_cert = get(cert_type::RSA_IDENTITY)?;
    let signing_cert = get(cert_type::ED25519_SIGNING)?;
    let last_cert = get(last)?;
    let cross_cert = get(cert_type::RSA_CROSS)?;

    let signing = Ed25519Cert::parse(cert_type::ED25519_SIGNING, signing_cert)?;
    let identity = signing.signed_with.ok_or(signing.invalid("does not name the identity key"))?;
    signing.verify(&identity, unix_time_s)?;
    let certified = Ed25519Cert::parse(last, last_cert)?;
    certified.verify(&signing.certified_key, unix_time_s)?;

    let rsa_key = rsa_identity_key(rsa_cert, unix_time_s)?;
    verify_cross_cert(cross_cert, &rsa_key.key, &identity, unix_time_s)?;
    let ed25519 = Ed25519Id(identity);
    let ids = RelayIds { rsa: rsa_key.rsa_id, ed25519: Some(ed25519) };
    let peer = PeerIdentity { ids, rsa_sha256: rsa_key.sha256, ed25519 };
    Ok((peer, certified.certified_key))
}

/// The version of Ed25519 certificates.
const VERSION: u8 = 1;

/// The type of the extension with the signer's key.
const SIGNED_WITH_KEY: u8 = 4;

/// Domain separation of cross-certificates.
const CROSS_CERT_CONTEXT: &[u8] = b"Tor TLS RSA/Ed25519 cross-certificate";

/// An Ed25519 certificate (cert-spec §2.1), not verified yet.
struct Ed25519Cert<'a> {
    cert_type: u8,
    expiry_h: u32,
    certified_key: [u8; 32],
    signed_with: Option<[u8; 32]>,
    signed: &'a [u8],
    signature: [u8; 64],
}

impl<'a> Ed25519Cert<'a> {
    fn parse(expected_type: u8, bytes: &'a [u8]) -> Result<Self, CertError> {
        const AFFECTS_VALIDATION: u8 = 1;
        let invalid = |problem| CertError::Invalid { cert_type: expected_type, problem };
        let mut reader = Reader::new("Ed25519 certificate", bytes);
        if reader.take_u8()? != VERSION {
            return Err(invalid("unknown version"));
        }
        if reader.take_u8()? != expected_type {
            return Err(invalid("is of another type"));
        }
        let expiry_h = reader.take_u32()?;
        let _key_type = reader.take_u8()?; // wrong in many of tor's versions (cert-spec A.4)
        let certified_key = reader.take_array()?;
        let mut signed_with = None;
        for _ in 0..reader.take_u8()? {
            let len = usize::from(reader.take_u16()?);
            let (extension_type, flags) = (reader.take_u8()?, reader.take_u8()?);
            let data = reader.take(len)?;
            if extension_type == SIGNED_WITH_KEY {
                if signed_with.is_some() {
                    return Err(invalid("names two signing keys"));
                }
                let key = data.try_into().map_err(|_| invalid("signing key of odd length"))?;
                signed_with = Some(key);
            } else if flags & AFFECTS_VALIDATION != 0 {
                return Err(invalid("has an unknown critical extension"));
            }
        }
        let signed = &bytes[..bytes.len() - reader.rest().len()];
        let signature = reader.take_array()?;
        if !reader.rest().is_empty() {
            return Err(invalid("has bytes after its signature"));
        }
        let cert_type = expected_type;
        Ok(Self { cert_type, expiry_h, certified_key, signed_with, signed, signature })
    }

    const fn invalid(&self, problem: &'static str) -> CertError {
        CertError::Invalid { cert_type: self.cert_type, problem }
    }

    fn verify(&self, signer: &[u8; 32], unix_time_s: u64) -> Result<(), CertError> {
        if self.signed_with.is_some_and(|named| named != *signer) {
            return Err(self.invalid("names another signing key"));
        }
        if u64::from(self.expiry_h) * 3600 <= unix_time_s {
            return Err(expired(self.cert_type));
        }
        VerifyingKey::from_bytes(signer)
            .and_then(|key| key.verify_strict(self.signed, &Signature::from_bytes(&self.signature)))
            .map_err(|_| self.invalid("its signature does not verify"))
    }
}

const fn expired(cert_type: u8) -> CertError {
    CertError::NotValidNow { cert_type, problem: "has expired; is our clock right?" }
}

/// The tolerance before the beginning and after the end of an X.509 certificate's validity, as in C tor:
/// relays' clocks differ.
const X509_PAST_SLOP_S: u64 = 2 * 86_400;
const X509_FUTURE_SLOP_S: u64 = 30 * 86_400;

/// A relay's RSA identity key and its digests.
struct RsaIdentity {
    key: RsaPublicKey,
    rsa_id: RsaId,
    sha256: [u8; 32],
}

/// Reads the RSA key from the X.509 certificate of type 2.
///
/// The certificate's own signature is not verified: the cross-certificate proves the key.
fn rsa_identity_key(cert: &[u8], unix_time_s: u64) -> Result<RsaIdentity, CertError> {
    let invalid = |problem| CertError::Invalid { cert_type: cert_type::RSA_IDENTITY, problem };
    let cert =
        x509_cert::Certificate::from_der(cert).map_err(|_| invalid("is not X.509 in DER"))?;
    let fields = cert.tbs_certificate;
    let validity = &fields.validity;
    if validity.not_after.to_unix_duration().as_secs() + X509_PAST_SLOP_S < unix_time_s {
        return Err(expired(cert_type::RSA_IDENTITY));
    }
    if validity.not_before.to_unix_duration().as_secs() > unix_time_s + X509_FUTURE_SLOP_S {
        let (cert_type, problem) =
            (cert_type::RSA_IDENTITY, "is not valid yet; is our clock right?");
        return Err(CertError::NotValidNow { cert_type, problem });
    }
    let der = fields.subject_public_key_info.subject_public_key;
    let der = der.as_bytes().ok_or(invalid("its key is not DER"))?;
    let key = RsaPublicKey::from_pkcs1_der(der).map_err(|_| invalid("its key is not RSA"))?;
    // Verification with a larger key, which the peer chooses, would take too long.
    if key.n().bits() != RSA_BITS {
        return Err(invalid("its key does not have 1024 bits"));
    }
    Ok(RsaIdentity { key, rsa_id: rsa_id(der), sha256: Sha256::digest(der).into() })
}

/// Verifies that the RSA identity certifies the Ed25519 identity (cert-spec §2.3).
fn verify_cross_cert(
    cert: &[u8],
    rsa_key: &RsaPublicKey,
    ed25519: &[u8; 32],
    unix_time_s: u64,
) -> Result<(), CertError> {
    let invalid = |problem| CertError::Invalid { cert_type: cert_type::RSA_CROSS, problem };
    let mut reader = Reader::new("RSA cross-certificate", cert);
    let certified: [u8; 32] = reader.take_array()?;
    let expiry_h = reader.take_u32()?;
    let signed = &cert[..36];
    let signature_len = usize::from(reader.take_u8()?);
    let signature = reader.take(signature_len)?;
    if certified != *ed25519 {
        return Err(invalid("is for another Ed25519 identity"));
    }
    if u64::from(expiry_h) * 3600 <= unix_time_s {
        return Err(expired(cert_type::RSA_CROSS));
    }
    let digest = Sha256::new().chain_update(CROSS_CERT_CONTEXT).chain_update(signed).finalize();
    // Tor signs the bare digest, without the algorithm identifier of PKCS #1.
    rsa_key
        .verify(Pkcs1v15Sign::new_unprefixed(), &digest, signature)
        .map_err(|_| invalid("its signature does not verify"))
}
