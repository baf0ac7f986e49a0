//! Streams that would lead back into the network.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Where the network's relays take links, by address and OR port. Exits let no stream go there: circuits
/// through circuits would be of any length, and multiply what an attacker sends (C tor: "re-entry").
///
/// Made from any order; cheap to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownRelays {
    /// In ascending order.
    addresses: Arc<[SocketAddr]>,
}

impl KnownRelays {
    /// Whether a relay takes links there.
    #[must_use]
    pub fn contain(&self, to: SocketAddr) -> bool {
        self.addresses.binary_search(&canonical(to)).is_ok()
    }
}

impl FromIterator<SocketAddr> for KnownRelays {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> Self {
        let mut addresses: Vec<_> = addresses.into_iter().map(canonical).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses: addresses.into() }
    }
}

/// Addresses of IPv4 in the guise of IPv6 lead to the same place; scopes and flows are nobody's
/// business.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_counts_in_any_guise_and_with_its_port_only() {
        let relays: KnownRelays =
            ["192.0.2.1:9001", "[2001:db8::1]:443", "192.0.2.1:443", "192.0.2.1:9001"]
                .map(|text| text.parse().expect("an address"))
                .into_iter()
                .collect();
        let contains = |text: &str| relays.contain(text.parse().expect("an address"));
        assert!(contains("192.0.2.1:9001") && contains("192.0.2.1:443"));
        assert!(contains("[::ffff:192.0.2.1]:443") && contains("[2001:db8::1]:443"));
        assert!(!contains("192.0.2.1:80") && !contains("192.0.2.2:443"));
        assert!(
            !contains("[2001:db8::2]:443") && !KnownRelays::default().contain(([0; 4], 0).into())
        );
    }

    proptest! {
        #[test]
        fn all_that_are_known_are_found_and_no_others(
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
