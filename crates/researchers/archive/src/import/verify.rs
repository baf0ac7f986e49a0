//! Verifies signatures of consensuses by the user's file of certificates.

use super::documents::Documents;
use super::source::{self, Count};
use crate::error::ArchiveError;
use dirmgr::verify::{Certificates, signers, verified_certificates};
use netdoc::RsaId;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Minimum number of authorities with a certificate at the time of a consensus. With fewer, a single old key could be a majority.
const AUTHORITIES_MIN: usize = 3;

/// The authorities and their keys.
pub(super) struct Verifier {
    certificates: Certificates,
}

impl Verifier {
    /// Reads certificates: tor's `cached-certs`, the answer of an authority, or a file from CollecTor, optionally compressed.
    pub(super) fn read(path: &Path) -> Result<Self, ArchiveError> {
        let failed = || ArchiveError::file("read", path);
        let opened = source::open(path, Arc::<Count>::default()).map_err(failed())?;
        let mut certificates = Certificates::new();
        let mut buffer = Vec::new();
        let mut documents = Documents::new(opened.stream, &mut buffer);
        while let Some(piece) = documents.next().map_err(failed())? {
            certificates.extend(verified_certificates(piece.text));
        }
        if certificates.is_empty() {
            let problem = "there is no valid certificate of an authority; use tor's cached-certs or an archive of `certs` from CollecTor";
            return Err(ArchiveError::Source {
                path: path.to_owned(),
                problem: problem.to_owned(),
            });
        }
        Ok(Self { certificates })
    }

    /// Checks tor's rule: more than half of the authorities with a certificate at that time must have signed the consensus.
    pub(super) fn check(&self, consensus: &[u8], valid_after_unix_s: u64) -> Result<(), String> {
        let is_valid =
            |published: u64, expires: u64| (published..expires).contains(&valid_after_unix_s);
        let certificates: Certificates = self
            .certificates
            .iter()
            .filter(|(_, certificate)| is_valid(certificate.published, certificate.expires))
            .map(|(name, certificate)| (*name, certificate.clone()))
            .collect();
        let authorities: BTreeSet<RsaId> =
            certificates.keys().map(|(identity, _)| *identity).collect();
        let signed = signers(consensus, &authorities, &certificates, valid_after_unix_s).len();
        match authorities.len() >= AUTHORITIES_MIN && signed * 2 > authorities.len() {
            true => Ok(()),
            false => Err(format!(
                "{signed} of {} authorities with a certificate of that time have signed the consensus; more than half of at least {AUTHORITIES_MIN} are needed",
                authorities.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dirmgr::fixture::{NOW, authorities, signed_by};

    #[test]
    fn more_than_half_of_the_authorities_must_have_signed() {
        let [a, b, c] = authorities();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("certificates");
        // The format of CollecTor.
        let annotated = [a, b, c]
            .map(|authority| format!("@type dir-key-certificate-3 1.0\n{}", authority.certificate));
        std::fs::write(&path, annotated.concat()).unwrap();
        let verifier = Verifier::read(&path).unwrap();
        let signed = signed_by(&[a, b]);
        assert_eq!(verifier.check(&signed, NOW), Ok(()));
        let problem = |text: &[u8], time| verifier.check(text, time).unwrap_err();
        assert!(problem(&signed_by(&[a]), NOW).starts_with("1 of 3"));
        assert!(problem(&signed, 0).starts_with("0 of 0"), "certificates of another time");
        let changed = String::from_utf8(signed).unwrap().replacen("known-flags", "known-flagz", 1);
        assert!(problem(changed.as_bytes(), NOW).starts_with("0 of 3"));
        std::fs::write(&path, &a.certificate).unwrap();
        let alone = Verifier::read(&path).unwrap();
        assert!(alone.check(&signed_by(&[a]), NOW).unwrap_err().starts_with("1 of 1"));
        std::fs::write(&path, "no certificate\n").unwrap();
        assert!(Verifier::read(&path).is_err());
    }
}
