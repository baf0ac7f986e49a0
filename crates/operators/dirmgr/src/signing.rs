//! Documents other than consensuses that a directory authority signs with its signing key.
//!
//! The format is that of votes: the text, the authority's certificate, and one `directory-signature` over everything before
//! it (dir-spec.txt, section 3.4.1). Only SHA-256 is accepted. A reader needs nothing but the authority's identity. The first
//! line of a document must differ from those of all other signed documents, so that no signature is valid for two kinds.

use crate::documents::{Documents, Wanted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use netdoc::RsaId;
use netdoc::signed::{DigestAlgorithm, certificates, consensus_signatures};
use netdoc::write::push_object;
use onion::keys::{RsaKey, verify_rsa};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const KEY_BEGIN: &str = "-----BEGIN RSA PRIVATE KEY-----";
const KEY_END: &str = "-----END RSA PRIVATE KEY-----";

/// Why a document is not one that the authority has signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature.
    #[error("it is not signed")]
    Missing,
    /// Another authority has signed it.
    #[error("{found} has signed it, not {expected}")]
    OtherAuthority {
        /// The identity in the signature.
        found: RsaId,
        /// The required identity.
        expected: RsaId,
    },
    /// The certificate of the signing key is missing, invalid or expired.
    #[error("the certificate of the signing key is missing, not valid, or has expired")]
    NoCertificate,
    /// The signature does not match the text.
    #[error("it was changed after it was signed")]
    Changed,
}

/// Why a document cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The key file is no RSA key.
    #[error("the key is not one as in tor's authority_signing_key: {0}")]
    Key(&'static str),
    /// The certificate is not valid.
    #[error("the certificate is not one as in tor's authority_certificate, or it has expired")]
    Certificate,
    /// The certificate is for another key.
    #[error("the certificate is for another signing key")]
    OtherKey,
}

/// The part of a document that the authority with this identity has signed, by a key whose certificate is in the document.
///
/// # Errors
/// [`SignatureError`].
pub fn verify(
    document: &[u8],
    authority: RsaId,
    now_unix_s: u64,
) -> Result<(&[u8], u64), SignatureError> {
    let (signed, signatures) = consensus_signatures(document).ok_or(SignatureError::Missing)?;
    let by_sha256 =
        signatures.iter().filter(|signature| signature.algorithm == DigestAlgorithm::Sha256);
    let first = by_sha256.clone().next().ok_or(SignatureError::Missing)?;
    let signature = by_sha256
        .clone()
        .find(|signature| signature.identity == authority)
        .ok_or(SignatureError::OtherAuthority { found: first.identity, expected: authority })?;
    let mut known = Documents::default();
    let wanted = [authority].into();
    // A certificate proves itself, wherever it is.
    known.put_certificates(now_unix_s, document, Wanted::These(&wanted));
    let name = (authority, signature.signing_key);
    let certificate = known.certificates.get(&name).ok_or(SignatureError::NoCertificate)?;
    let digest = Sha256::digest(signed);
    if !verify_rsa(&certificate.signing_key_der, &digest, &signature.signature) {
        return Err(SignatureError::Changed);
    }
    Ok((signed, certificate.expires))
}

/// A text with the authority's certificate and signature. `key` and `certificate` are the contents of tor's files
/// `authority_signing_key` and `authority_certificate`.
///
/// # Errors
/// [`SigningError`].
pub fn sign(
    text: &str,
    certificate: &[u8],
    key: &[u8],
    now_unix_s: u64,
) -> Result<String, SigningError> {
    let key = read_key(key)?;
    let mut known = Documents::default();
    known.put_certificates(now_unix_s, certificate, Wanted::All);
    let own =
        certificates(certificate).find(|certificate| certificate.signing_key == key.public_der());
    let Some(own) = own else {
        let is_empty = known.certificates.is_empty();
        return Err(if is_empty { SigningError::Certificate } else { SigningError::OtherKey });
    };
    let (identity, signing_key) = (own.fingerprint, key.id());
    if !known.certificates.contains_key(&(identity, signing_key)) {
        return Err(SigningError::Certificate);
    }
    let mut document = text.to_owned();
    if !document.ends_with('\n') {
        document.push('\n');
    }
    document.push_str(&String::from_utf8_lossy(own.text));
    document.push_str("directory-signature ");
    let signature =
        key.sign(&Sha256::digest(&document)).map_err(|error| SigningError::Key(error.reason()))?;
    document.push_str(&format!("sha256 {identity} {signing_key}\n"));
    push_object(&mut document, "SIGNATURE", &signature);
    Ok(document)
}

fn read_key(file: &[u8]) -> Result<RsaKey, SigningError> {
    let text = std::str::from_utf8(file).map_err(|_| SigningError::Key("it is not text"))?;
    let body = text.trim_end_matches('\0').trim().strip_prefix(KEY_BEGIN);
    let body = body.and_then(|body| body.strip_suffix(KEY_END));
    let body = body.ok_or(SigningError::Key("it is not an RSA key, or it is encrypted"))?;
    // With room for all, it does not grow, which would leave a copy.
    let mut base64 = Zeroizing::new(String::with_capacity(body.len()));
    base64.extend(body.split_ascii_whitespace());
    let der = STANDARD.decode(&*base64).map(Zeroizing::new);
    let der = der.map_err(|_| SigningError::Key("it is not base64"))?;
    RsaKey::signing_from_der(&der).map_err(|problem| SigningError::Key(problem.reason()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, NS, authorities};

    const TEXT: &str = "a-document-of-tests 1\nline\n";

    #[test]
    fn a_document_is_verified_by_its_authority_alone() {
        let [a, b, _] = authorities();
        let key = a.signing_key_pem();
        let signed = sign(TEXT, a.certificate.as_bytes(), key.as_bytes(), NOW).expect("signed");
        let ours = a.name().0;
        let (part, ends_unix_s) = verify(signed.as_bytes(), ours, NOW).expect("ours");
        assert!(ends_unix_s > NOW);
        assert!(part.starts_with(TEXT.as_bytes()));
        // What follows the signature is not part of the document.
        let more = format!("{signed}line\n");
        assert_eq!(verify(more.as_bytes(), ours, NOW), Ok((part, ends_unix_s)));
        let expected = b.name().0;
        let other = SignatureError::OtherAuthority { found: ours, expected };
        assert_eq!(verify(signed.as_bytes(), expected, NOW), Err(other));
        let changed = signed.replacen("line", "link", 1);
        assert_eq!(verify(changed.as_bytes(), ours, NOW), Err(SignatureError::Changed));
        assert_eq!(verify(TEXT.as_bytes(), ours, NOW), Err(SignatureError::Missing));
        let expired = verify(signed.as_bytes(), ours, u64::MAX);
        assert_eq!(expired, Err(SignatureError::NoCertificate));
        let bare = signed.replacen("dir-key-certification", "dir-key-x", 1);
        assert_eq!(verify(bare.as_bytes(), ours, NOW), Err(SignatureError::NoCertificate));
        // Another authority cannot sign in its name, and SHA-1 is not accepted.
        let forged = sign(TEXT, b.certificate.as_bytes(), b.signing_key_pem().as_bytes(), NOW);
        let forged = forged
            .expect("signed")
            .replace(&format!("sha256 {}", b.name().0), &format!("sha256 {ours}"));
        assert_eq!(verify(forged.as_bytes(), ours, NOW), Err(SignatureError::NoCertificate));
        let weak = signed.replacen("signature sha256", "signature sha1", 1);
        assert_eq!(verify(weak.as_bytes(), ours, NOW), Err(SignatureError::Missing));
        assert_eq!(verify(NS, ours, NOW), Err(SignatureError::Missing), "signed by SHA-1");
    }

    #[test]
    fn a_key_without_its_certificate_signs_nothing() {
        let [a, b, _] = authorities();
        let (key, certificate) = (a.signing_key_pem(), a.certificate.as_bytes());
        let sign = |certificate: &[u8], key: &str, now| {
            sign(TEXT, certificate, key.as_bytes(), now).expect_err("refused")
        };
        assert_eq!(sign(b.certificate.as_bytes(), &key, NOW), SigningError::OtherKey);
        assert_eq!(sign(b"", &key, NOW), SigningError::Certificate);
        assert_eq!(sign(certificate, &key, u64::MAX), SigningError::Certificate);
        for bad in ["", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"] {
            assert!(matches!(sign(certificate, bad, NOW), SigningError::Key(_)), "{bad}");
        }
    }
}
