//! Whether a relay belongs to the families that it says (`family-cert`, proposal 321).

use super::FamilyId;
use netdoc::descriptor::ServerDescriptor;
use onion::identity::Ed25519Id;
use onion::link::{CertError, verify_family_cert};
use std::collections::BTreeSet;

/// The families whose keys have certified the identity of a descriptor's relay, at this time in Unix seconds; and why its other
/// certificates prove nothing. The relay is to blame for those: no authority takes them.
///
/// That the descriptor is the relay's own word, its identity with it, is for the caller to know: authorities look at that, and a
/// consensus names the descriptors that it is about.
#[must_use]
pub fn proven(
    descriptor: &ServerDescriptor<'_>,
    now_unix_s: u64,
) -> (BTreeSet<FamilyId>, Vec<CertError>) {
    let (mut families, mut problems) = (BTreeSet::new(), Vec::new());
    // A relay of before Ed25519 has no identity that a family could certify.
    let Some(identity) = descriptor.ed25519.map(|id| Ed25519Id(*id.as_bytes())) else {
        return (families, problems);
    };
    for cert in &descriptor.family_certs {
        match verify_family_cert(cert, &identity, now_unix_s) {
            Ok(family) => drop(families.insert(FamilyId(family))),
            Err(problem) => problems.push(problem),
        }
    }
    (families, problems)
}

#[cfg(test)]
mod tests;
