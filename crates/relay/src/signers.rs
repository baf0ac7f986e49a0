//! Who has signed a consensus, for those who are no relay.

use crate::cache::{Documents, Wanted, verify};
use netdoc::Fingerprint;
use std::collections::BTreeSet;

/// Which of the `trusted` authorities, named by the digests of their identity keys, have signed this consensus with signing keys
/// that one of these certificates names. What of the certificates does not hold, or has ended at `now_unix_s`, counts for nothing.
#[must_use]
pub fn consensus_signers(
    consensus: &[u8],
    certificates: &[u8],
    trusted: &BTreeSet<Fingerprint>,
    now_unix_s: u64,
) -> BTreeSet<Fingerprint> {
    let mut documents = Documents::default();
    documents.put_certificates(now_unix_s, certificates, Wanted::These(trusted));
    verify::signers(consensus, trusted, &documents.certificates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::{NOW, authorities, signed_by};

    #[test]
    fn only_trusted_authorities_with_certificates_that_hold_have_signed() {
        let [a, b, c] = authorities();
        let certificates = [a, b, c].map(|it| it.certificate.clone()).concat();
        let names = [a, b, c].map(|it| it.name().0);
        let text = signed_by(&[a, b]);
        let count = |trusted: &[Fingerprint], text: &[u8], certificates: &str, now| {
            let trusted = trusted.iter().copied().collect();
            consensus_signers(text, certificates.as_bytes(), &trusted, now).len()
        };
        assert_eq!(count(&names, &text, &certificates, NOW), 2);
        assert_eq!(count(&names[1..], &text, &certificates, NOW), 1);
        assert_eq!(count(&names, &text, &a.certificate, NOW), 1);
        assert_eq!(count(&names, &text, &certificates, u64::MAX), 0, "certificates have ended");
        let text = String::from_utf8(text).expect("text");
        let changed = text.replacen("\nr ", "\nr x", 1);
        assert_ne!(changed, text);
        assert_eq!(count(&names, changed.as_bytes(), &certificates, NOW), 0);
    }
}
