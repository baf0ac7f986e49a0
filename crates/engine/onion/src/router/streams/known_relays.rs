//! The relays that the consensus lists.

use crate::identity::RsaId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The identities of the network's relays, and their OR addresses. Built from any order; cheap to clone.
///
/// Exits open no streams to them: circuits through circuits could have any length, and multiply an attacker's
/// traffic (C tor: "re-entry"). Nor do they serve circuits from a relay that is not listed: anybody can create
/// a key pair and build a single-hop circuit through it (C tor: `RefuseUnknownExits`). Listed relays are
/// dialled with priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownRelays {
    /// Sorted.
    addresses: Arc<[SocketAddr]>,
    /// Identities, sorted; empty if they are unknown.
    identities: Arc<[RsaId]>,
    /// Whether streams may lead to them: `allow-network-reentry=1`.
    allow_reentry: bool,
    /// Whether circuits from other relays are served: `refuseunknownexits=0`.
    allow_unknown: bool,
}

impl KnownRelays {
    /// Whether a relay listens at this address and port.
    #[must_use]
    pub fn contain(&self, to: SocketAddr) -> bool {
        self.addresses.binary_search(&canonical(to)).is_ok()
    }

    /// Whether a relay listens at this address, on any port.
    #[must_use]
    pub fn contain_host(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let at = self.addresses.partition_point(|known| known.ip() < ip);
        self.addresses.get(at).is_some_and(|known| known.ip() == ip)
    }

    /// Whether streams to this destination are refused.
    #[must_use]
    pub fn forbid(&self, to: SocketAddr) -> bool {
        !self.allow_reentry && self.contain(to)
    }

    /// Whether a relay's circuits may have streams; any relay's, as long as no consensus is known.
    #[must_use]
    pub fn trust(&self, relay: &RsaId) -> bool {
        let has_no_consensus = self.identities.is_empty();
        self.allow_unknown || has_no_consensus || self.list(relay)
    }

    /// Whether the consensus lists this relay.
    #[must_use]
    pub fn list(&self, relay: &RsaId) -> bool {
        self.identities.binary_search(relay).is_ok()
    }

    /// Sets the identities.
    #[must_use]
    pub fn with_identities(self, identities: impl IntoIterator<Item = RsaId>) -> Self {
        let mut identities: Vec<_> = identities.into_iter().collect();
        identities.sort_unstable();
        Self { identities: identities.into(), ..self }
    }

    /// Sets the consensus' parameters for both.
    #[must_use]
    pub fn allowing(self, allow_reentry: bool, allow_unknown: bool) -> Self {
        Self { allow_reentry, allow_unknown, ..self }
    }
}

impl FromIterator<SocketAddr> for KnownRelays {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> Self {
        let mut addresses: Vec<_> = addresses.into_iter().map(canonical).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses: addresses.into(), ..Self::default() }
    }
}

/// IPv4-mapped addresses lead to the same host; scopes and flow labels are ignored.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_matches_in_every_notation_with_its_port_only() {
        let relays: KnownRelays =
            ["192.0.2.1:9001", "[2001:db8::1]:443", "192.0.2.1:443", "192.0.2.1:9001"]
                .map(|text| text.parse().expect("an address"))
                .into_iter()
                .collect();
        let contains = |text: &str| relays.contain(text.parse().expect("an address"));
        assert!(contains("192.0.2.1:9001") && contains("192.0.2.1:443"));
        assert!(contains("[::ffff:192.0.2.1]:443") && contains("[2001:db8::1]:443"));
        let hosts = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "192.0.2.2", "10.0.0.1"];
        let known = hosts.map(|ip| relays.contain_host(ip.parse().expect("an address")));
        assert_eq!(known, [true, true, true, false, false]);
        assert!(!contains("192.0.2.1:80") && !contains("192.0.2.2:443"));
        assert!(
            !contains("[2001:db8::2]:443") && !KnownRelays::default().contain(([0; 4], 0).into())
        );
    }

    #[test]
    fn unlisted_relays_need_an_unknown_or_permissive_consensus() {
        let (listed, other) = (RsaId([1; 20]), RsaId([2; 20]));
        assert!(KnownRelays::default().trust(&other));
        let relays = KnownRelays::default().with_identities([RsaId([3; 20]), listed]);
        assert!(relays.trust(&listed) && relays.trust(&RsaId([3; 20])) && !relays.trust(&other));
        assert!(relays.allowing(false, true).trust(&other));
    }

    proptest! {
        #[test]
        fn exactly_the_known_addresses_are_found(
            known in prop::collection::vec((any::<[u8; 4]>(), any::<u16>()), 0..50),
            other: ([u8; 4], u16),
        ) {
            let relays: KnownRelays = known.iter().map(|at| SocketAddr::from(*at)).collect();
            for at in &known {
                prop_assert!(relays.contain((*at).into()));
            }
            prop_assert_eq!(relays.contain(other.into()), known.contains(&other));
        }
    }
}
