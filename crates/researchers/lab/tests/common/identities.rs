//! Identities of relays and measurers.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use link::IdentityIssuer;
use onion::identity::OwnIdentity;
use std::sync::{Arc, OnceLock};

/// The date of all certificates and orders.
pub(crate) const UNIX_TIME_S: u64 = 1_700_000_000;

/// Identities, created once per process: RSA keys are slow to generate.
pub(crate) struct Identities {
    /// Issuer of measurers and of other relays than the target.
    pub(crate) others: IdentityIssuer,
    /// Issuer of the target and of its impostor.
    pub(crate) relays: IdentityIssuer,
    /// The return relays of a measurer.
    pub(crate) landings: Vec<Arc<OwnIdentity>>,
    pub(crate) relay: Arc<OwnIdentity>,
    pub(crate) impostor: Arc<OwnIdentity>,
    /// A relay to which circuits are extended.
    pub(crate) next: Arc<OwnIdentity>,
}

pub(crate) fn identities() -> &'static Identities {
    static IDENTITIES: OnceLock<Identities> = OnceLock::new();
    IDENTITIES.get_or_init(|| {
        let mut others = IdentityIssuer::new([1; 32], UNIX_TIME_S).unwrap();
        let mut relays = IdentityIssuer::new([2; 32], UNIX_TIME_S).unwrap();
        let landings = (0..2).map(|_| Arc::new(others.identity().unwrap())).collect();
        let [relay, impostor] = [(); 2].map(|()| Arc::new(relays.identity().unwrap()));
        let next = Arc::new(others.identity().unwrap());
        Identities { others, relays, landings, relay, impostor, next }
    })
}
