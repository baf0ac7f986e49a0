//! Signatures of consensuses and of authorities' certificates.

use super::Certificate;
use bytes::Bytes;
use netdoc::Fingerprint;
use netdoc::signed::{
    AuthorityCertificate, ConsensusSignature, DigestAlgorithm, consensus_signatures,
};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use tor_llcrypto::pk::rsa;

/// The certificate, if its identity key is the one that it names, and has signed it.
pub(super) fn certificate(read: &AuthorityCertificate<'_>) -> Option<Certificate> {
    let identity_key = rsa::PublicKey::from_der(&read.identity_key)?;
    if identity_key.to_rsa_identity().as_bytes() != read.fingerprint.as_bytes() {
        return None;
    }
    identity_key.verify(&Sha1::digest(read.signed), &read.certification).ok()?;
    let signing_key = rsa::PublicKey::from_der(&read.signing_key)?;
    Some(Certificate {
        text: Bytes::copy_from_slice(read.text),
        identity: read.fingerprint,
        signing_key: Fingerprint::from_bytes(signing_key.to_rsa_identity().to_bytes()),
        signing_key_der: read.signing_key.clone(),
        published: read.published,
        expires: read.expires,
    })
}

/// Certificates, by identity and signing key.
pub(crate) type Certificates = BTreeMap<(Fingerprint, Fingerprint), Certificate>;

/// Which of the `trusted` authorities have really signed this consensus.
pub(crate) fn signers(
    consensus: &[u8],
    trusted: &BTreeSet<Fingerprint>,
    certificates: &Certificates,
) -> BTreeSet<Fingerprint> {
    let Some((signed, signatures)) = consensus_signatures(consensus) else {
        return BTreeSet::new();
    };
    let (sha1, sha256) = (Sha1::digest(signed), Sha256::digest(signed));
    let holds = |signature: &&ConsensusSignature| {
        let name = (signature.identity, signature.signing_key);
        let key =
            certificates.get(&name).and_then(|c| rsa::PublicKey::from_der(&c.signing_key_der));
        let digest = match signature.algorithm {
            DigestAlgorithm::Sha1 => &sha1[..],
            DigestAlgorithm::Sha256 => &sha256[..],
        };
        trusted.contains(&signature.identity)
            && key.is_some_and(|key| key.verify(digest, &signature.signature).is_ok())
    };
    signatures.iter().filter(holds).map(|signature| signature.identity).collect()
}

/// Whether a trusted authority has signed with a key whose certificate is not here.
pub(crate) fn lacks_certificates(
    consensus: &[u8],
    trusted: &BTreeSet<Fingerprint>,
    certificates: &Certificates,
) -> bool {
    let (_, signatures) = consensus_signatures(consensus).unwrap_or_default();
    signatures.iter().any(|signature| {
        trusted.contains(&signature.identity)
            && !certificates.contains_key(&(signature.identity, signature.signing_key))
    })
}
