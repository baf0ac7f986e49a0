//! Signatures of consensuses and of authority certificates (dir-spec.txt, sections 3.1 and 3.4.1).

use crate::documents::{Documents, Wanted};
use bytes::Bytes;
use netdoc::RsaId;
use netdoc::signed::{
    AuthorityCertificate, ConsensusSignature, DigestAlgorithm, consensus_signatures,
};
use onion::keys::{rsa_id, verify_rsa};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// A verified certificate of a directory authority.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The whole certificate, up to the end of its signature.
    pub text: Bytes,
    /// Digest of the identity key.
    pub identity: RsaId,
    /// Digest of the signing key.
    pub signing_key: RsaId,
    /// The signing key, in DER.
    pub(crate) signing_key_der: Vec<u8>,
    /// When it was published, in Unix seconds.
    pub published: u64,
    /// When it expires, in Unix seconds.
    pub expires: u64,
}

impl Certificate {
    /// Whether it has not expired at this time.
    pub(crate) const fn is_valid_at(&self, now_unix_s: u64) -> bool {
        self.expires > now_unix_s
    }

    /// `None` unless the identity key matches the fingerprint and has signed the certificate.
    /// Whether it has expired is not checked here.
    pub(crate) fn verified(read: &AuthorityCertificate<'_>) -> Option<Self> {
        let is_certified =
            || verify_rsa(&read.identity_key, &Sha1::digest(read.signed), &read.certification);
        if rsa_id(&read.identity_key) != read.fingerprint || !is_certified() {
            return None;
        }
        Some(Self {
            text: Bytes::copy_from_slice(read.text),
            identity: read.fingerprint,
            signing_key: rsa_id(&read.signing_key),
            signing_key_der: read.signing_key.clone(),
            published: read.published,
            expires: read.expires,
        })
    }
}

/// Certificates by identity and signing key.
pub type Certificates = BTreeMap<(RsaId, RsaId), Certificate>;

/// The certificates in a file whose signatures are valid, including expired certificates.
#[must_use]
pub fn verified_certificates(text: &[u8]) -> Certificates {
    let verified = netdoc::signed::certificates(text)
        .filter_map(|certificate| Certificate::verified(&certificate));
    verified.map(|verified| ((verified.identity, verified.signing_key), verified)).collect()
}

/// The `trusted` authorities whose signatures on this consensus are valid, by keys of those
/// `certificates` that have not expired at `now_unix_s`. They may have been valid when they were
/// stored.
#[must_use]
pub fn signers(
    consensus: &[u8],
    trusted: &BTreeSet<RsaId>,
    certificates: &Certificates,
    now_unix_s: u64,
) -> BTreeSet<RsaId> {
    let Some((signed, signatures)) = consensus_signatures(consensus) else {
        return BTreeSet::new();
    };
    let (sha1, sha256) = (Sha1::digest(signed), Sha256::digest(signed));
    let is_valid = |signature: &&ConsensusSignature| {
        let name = (signature.identity, signature.signing_key);
        let digest = match signature.algorithm {
            DigestAlgorithm::Sha1 => &sha1[..],
            DigestAlgorithm::Sha256 => &sha256[..],
        };
        trusted.contains(&signature.identity)
            && certificates
                .get(&name)
                .filter(|certificate| certificate.is_valid_at(now_unix_s))
                .is_some_and(|certificate| {
                    verify_rsa(&certificate.signing_key_der, digest, &signature.signature)
                })
    };
    signatures.iter().filter(is_valid).map(|signature| signature.identity).collect()
}

/// The `trusted` authorities, named by the digests of their identity keys, that have signed this
/// consensus with a signing key from one of the `certificates`. Certificates that are invalid, or
/// have expired at `now_unix_s`, are ignored.
#[must_use]
pub fn consensus_signers(
    consensus: &[u8],
    certificates: &[u8],
    trusted: &BTreeSet<RsaId>,
    now_unix_s: u64,
) -> BTreeSet<RsaId> {
    let mut documents = Documents::default();
    documents.put_certificates(now_unix_s, certificates, Wanted::These(trusted));
    signers(consensus, trusted, &documents.certificates, now_unix_s)
}

/// Whether a trusted authority has signed with a key that has no valid certificate here.
pub(crate) fn lacks_certificates(
    consensus: &[u8],
    trusted: &BTreeSet<RsaId>,
    certificates: &Certificates,
    now_unix_s: u64,
) -> bool {
    let (_, signatures) = consensus_signatures(consensus).unwrap_or_default();
    signatures.iter().any(|signature| {
        let certificate = certificates.get(&(signature.identity, signature.signing_key));
        trusted.contains(&signature.identity)
            && !certificate.is_some_and(|certificate| certificate.is_valid_at(now_unix_s))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, NS, authorities, documents, signed_by};

    #[test]
    fn only_trusted_authorities_with_valid_certificates_have_signed() {
        let [a, b, c] = authorities();
        let certificates = [a, b, c].map(|authority| authority.certificate.clone()).concat();
        let names = [a, b, c].map(|authority| authority.name().0);
        let text = signed_by(&[a, b]);
        let count = |trusted: &[RsaId], text: &[u8], certificates: &str, now| {
            let trusted = trusted.iter().copied().collect();
            consensus_signers(text, certificates.as_bytes(), &trusted, now).len()
        };
        assert_eq!(count(&names, &text, &certificates, NOW), 2);
        assert_eq!(count(&names[1..], &text, &certificates, NOW), 1);
        assert_eq!(count(&names, &text, &a.certificate, NOW), 1);
        assert_eq!(count(&names, &text, &certificates, u64::MAX), 0, "expired certificates");
        let text = String::from_utf8(text).expect("text");
        let changed = text.replacen("\nr ", "\nr x", 1);
        assert_ne!(changed, text);
        assert_eq!(count(&names, changed.as_bytes(), &certificates, NOW), 0);
    }

    #[test]
    fn a_signer_counts_once_and_only_with_a_valid_signature() {
        let [a, b, c] = authorities();
        let (documents, _) = documents();
        let trusted: BTreeSet<_> = [a, b, c].map(|authority| authority.name().0).into();
        let count = |text: &[u8]| signers(text, &trusted, &documents.certificates, NOW).len();
        let good = signed_by(&[a, b]);
        assert_eq!(count(&good), 2);
        assert_eq!(count(&signed_by(&[a, a, a])), 1);
        let altered = String::from_utf8(good.clone()).expect("text");
        let altered = altered.replacen("known-flags", "known-flagz", 1);
        assert_eq!(count(altered.as_bytes()), 0);
        assert_eq!(count(NS), 0);
        assert_eq!(count(b""), 0);
        assert_eq!(signers(&good, &trusted, &Certificates::new(), NOW).len(), 0);
        assert!(lacks_certificates(&good, &trusted, &Certificates::new(), NOW));
        assert!(!lacks_certificates(&good, &trusted, &documents.certificates, NOW));
        // A certificate that was valid when it was stored expires like any other, and is asked for again.
        let end = documents
            .certificates
            .values()
            .map(|certificate| certificate.expires)
            .max()
            .expect("some");
        assert_eq!(signers(&good, &trusted, &documents.certificates, end - 1).len(), 2);
        assert_eq!(signers(&good, &trusted, &documents.certificates, end).len(), 0);
        assert!(lacks_certificates(&good, &trusted, &documents.certificates, end));
    }
}
