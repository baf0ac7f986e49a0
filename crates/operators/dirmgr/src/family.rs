//! Families that a relay has proved to belong to (`family-cert`, proposal 321).

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use netdoc::descriptor::ServerDescriptor;
use onion::link::{CertError, verify_family_cert};
use std::collections::BTreeSet;
use std::fmt;

/// A family's public key, as `tor --keygen-family` prints it: 43 characters of base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyId(pub [u8; 32]);

impl fmt::Display for FamilyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for FamilyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The families that a descriptor's certificates prove.
#[derive(Clone, Debug, Default)]
pub struct ProvenFamilies {
    /// Families whose keys have certified the relay's identity.
    pub families: BTreeSet<FamilyId>,
    /// Why the other certificates prove nothing. The relay is to blame: no authority accepts a
    /// descriptor with such certificates.
    pub problems: Vec<CertError>,
}

/// Verifies the family certificates of a descriptor at a time in Unix seconds.
///
/// The signature of the descriptor is not verified: authorities do that, and a consensus names the
/// descriptors that it lists.
#[must_use]
pub fn proven_families(descriptor: &ServerDescriptor<'_>, now_unix_s: u64) -> ProvenFamilies {
    let mut proven = ProvenFamilies::default();
    // A relay without an Ed25519 identity has nothing that a family could certify.
    let Some(identity) = descriptor.ed25519 else {
        return proven;
    };
    for cert in &descriptor.family_certs {
        match verify_family_cert(cert, &identity, now_unix_s) {
            Ok(family) => drop(proven.families.insert(FamilyId(family))),
            Err(problem) => proven.problems.push(problem),
        }
    }
    proven
}

#[cfg(test)]
mod tests;
