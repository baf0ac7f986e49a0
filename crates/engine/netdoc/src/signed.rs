//! Signatures of consensuses, and the certificates of authorities (dir-spec.txt, sections 3.1 and
//! 3.4.1). This crate has no cryptography and verifies nothing; crate `dirmgr` does.

use crate::pieces::authority_certificates;
use crate::text::{self, Line, Lines, date_time, words};
use identity::RsaId;

/// How a consensus is hashed before it is signed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DigestAlgorithm {
    /// The ns flavour.
    Sha1,
    /// All other flavours.
    Sha256,
}

/// One signature of a consensus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConsensusSignature {
    /// The signed digest.
    pub algorithm: DigestAlgorithm,
    /// The authority: the digest of its identity key.
    pub identity: RsaId,
    /// The digest of its signing key.
    pub signing_key: RsaId,
    /// The RSA signature.
    pub signature: Vec<u8>,
}

/// The signed part of a consensus, and its signatures. Unreadable signatures, such as those of
/// unknown algorithms, are skipped. `None` if nothing is signed.
#[must_use]
pub fn consensus_signatures(bytes: &[u8]) -> Option<(&[u8], Vec<ConsensusSignature>)> {
    const KEYWORD: &[u8] = b"directory-signature";
    let mut lines = Lines::new(bytes);
    while lines.peek().is_some_and(|line| line.bytes.starts_with(b"@")) {
        lines.next();
    }
    let from = lines.position(bytes);
    while lines.peek()?.keyword().0 != KEYWORD {
        lines.next();
    }
    // Up to the space after the first signature's keyword.
    let signed = bytes.get(from..lines.position(bytes) + KEYWORD.len() + 1)?;
    let mut signatures = Vec::new();
    while let Some(line) = lines.next() {
        let (keyword, rest) = line.keyword();
        if keyword == KEYWORD
            && let Some(head) = signature_head(rest)
            && let Some(signature) = object(&mut lines)
        {
            let (algorithm, identity, signing_key) = head;
            signatures.push(ConsensusSignature { algorithm, identity, signing_key, signature });
        }
    }
    Some((signed, signatures))
}

fn signature_head(rest: &[u8]) -> Option<(DigestAlgorithm, RsaId, RsaId)> {
    let found: Vec<&[u8]> = words(rest).collect();
    let (algorithm, identity, signing_key) = match found[..] {
        [identity, key] => (DigestAlgorithm::Sha1, identity, key),
        [b"sha1", identity, key] => (DigestAlgorithm::Sha1, identity, key),
        [b"sha256", identity, key] => (DigestAlgorithm::Sha256, identity, key),
        _ => return None,
    };
    Some((algorithm, RsaId::parse(identity).ok()?, RsaId::parse(signing_key).ok()?))
}

/// The bytes of the object that begins at the next line.
fn object(lines: &mut Lines<'_>) -> Option<Vec<u8>> {
    /// Keys and signatures of 4096 bits are well below this in base64.
    const TEXT_MAX: usize = 2048;
    lines.peek().filter(|line| line.bytes.starts_with(b"-----BEGIN "))?;
    lines.next();
    let mut base64 = Vec::new();
    while let Some(line) = lines.peek().filter(|line| line.complete) {
        if line.bytes.starts_with(b"-----END ") {
            lines.next();
            let mut room = [0; TEXT_MAX];
            return text::base64_into(&base64, &mut room).map(<[u8]>::to_vec);
        }
        if line.bytes.starts_with(b"-") || base64.len() + line.bytes.len() > TEXT_MAX {
            return None;
        }
        base64.extend_from_slice(line.bytes);
        lines.next();
    }
    None
}

/// A certificate by which an authority's identity key names a signing key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorityCertificate<'a> {
    /// The whole text, up to the end of its signature.
    pub text: &'a [u8],
    /// The part that the certification signs.
    pub signed: &'a [u8],
    /// The claimed digest of its identity key.
    pub fingerprint: RsaId,
    /// The identity key, in DER.
    pub identity_key: Vec<u8>,
    /// The signing key, in DER.
    pub signing_key: Vec<u8>,
    /// When it was published, in Unix seconds.
    pub published: u64,
    /// When it expires, in Unix seconds.
    pub expires: u64,
    /// The signature with the identity key.
    pub certification: Vec<u8>,
}

/// The certificates of an answer or a file. Incomplete certificates are skipped.
pub fn certificates(bytes: &[u8]) -> impl Iterator<Item = AuthorityCertificate<'_>> {
    authority_certificates(bytes).filter_map(|piece| certificate(piece.text, piece.digested))
}

/// Reads the signed part only: anyone can append to it.
fn certificate<'a>(text: &'a [u8], signed: &'a [u8]) -> Option<AuthorityCertificate<'a>> {
    let mut lines = Lines::new(signed);
    let (mut fingerprint, mut published, mut expires) = (None, None, None);
    let (mut identity_key, mut signing_key) = (None, None);
    while let Some(line) = lines.next() {
        let (keyword, rest) = Line::keyword(&line);
        match keyword {
            b"dir-key-certificate-version" if rest != b"3" => return None,
            b"fingerprint" => fingerprint = RsaId::parse(rest).ok(),
            b"dir-key-published" => published = date_time(rest),
            b"dir-key-expires" => expires = date_time(rest),
            b"dir-identity-key" => identity_key = object(&mut lines),
            b"dir-signing-key" => signing_key = object(&mut lines),
            _ => {}
        }
    }
    let mut behind = Lines::new(text.get(signed.len()..)?);
    let certification = object(&mut behind)?;
    Some(AuthorityCertificate {
        text: &text[..behind.position(text)],
        signed,
        fingerprint: fingerprint?,
        identity_key: identity_key?,
        signing_key: signing_key?,
        published: published?,
        expires: expires?,
        certification,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: &[u8] = include_bytes!("../tests/data/consensus-ns");

    #[test]
    fn a_real_consensus_is_signed_by_its_authorities() {
        let (signed, signatures) = consensus_signatures(NS).expect("signed");
        assert!(signed.starts_with(b"network-status-version 3"));
        assert!(signed.ends_with(b"\ndirectory-signature "));
        let consensus = crate::Consensus::parse(NS).expect("a consensus");
        assert_eq!(signatures.len(), consensus.signatures);
        for signature in &signatures {
            assert_eq!(signature.algorithm, DigestAlgorithm::Sha1);
            assert!(consensus.authorities.iter().any(|a| a.fingerprint == signature.identity));
            assert!(signature.signature.len() >= 128);
        }
    }

    #[test]
    fn unreadable_signatures_are_skipped() {
        assert_eq!(consensus_signatures(b"network-status-version 3\n"), None);
        let (a, b) = ("A".repeat(40), "B".repeat(40));
        let object = "-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n";
        let text = format!(
            "@type x\nnetwork\ndirectory-signature sha256 {a} {b}\n{object}\
             directory-signature md5 {a} {b}\n{object}directory-signature {a}\n{object}\
             directory-signature {b} {a}\n{object}directory-signature {a} {b}\n-----BEGIN S-----\nA"
        );
        let (signed, signatures) = consensus_signatures(text.as_bytes()).expect("signed");
        assert_eq!(signed, b"network\ndirectory-signature ");
        let found: Vec<_> = signatures.iter().map(|s| (s.algorithm, s.identity)).collect();
        let (a, b) = (a.parse().expect("a fingerprint"), b.parse().expect("a fingerprint"));
        assert_eq!(found, [(DigestAlgorithm::Sha256, a), (DigestAlgorithm::Sha1, b)]);
    }

    #[test]
    fn content_after_a_certificates_signature_is_ignored() {
        let object = |base64: &str| format!("-----BEGIN X-----\n{base64}\n-----END X-----\n");
        let (good, bad) = (object("AAAA"), object("////"));
        let text = format!(
            "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published 2023-01-01 00:00:00\n\
             dir-key-expires 2024-01-01 00:00:00\ndir-identity-key\n{good}dir-signing-key\n{good}\
             dir-key-certification\n{good}",
            "A".repeat(40)
        );
        let more = format!(
            "fingerprint {}\ndir-signing-key\n{bad}dir-identity-key\n{bad}dir-key-expires 2099-01-01 00:00:00\n",
            "B".repeat(40)
        );
        let with_more = format!("{text}{more}");
        let alone: Vec<_> = certificates(text.as_bytes()).collect();
        assert_eq!(alone.len(), 1);
        assert_eq!(alone[0].text, text.as_bytes());
        assert_eq!(certificates(with_more.as_bytes()).collect::<Vec<_>>(), alone);
    }
}
