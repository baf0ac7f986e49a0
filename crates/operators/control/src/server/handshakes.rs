//! Unauthenticated connections, whose handshake is not over.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::task::AbortHandle;

/// The maximum number of simultaneous handshakes.
const HANDSHAKES_MAX: usize = 256;

/// The maximum from one address; for IPv6, from one /64 network, which a single stranger has.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;

/// The prefixes of an address, the shortest first: typically a provider's, a customer's and a single network.
type Networks = [IpAddr; 3];

/// The current handshakes. If all places are taken, a new connection replaces the oldest one: an honest handshake takes
/// a few round trips, a silent connection as long as it is permitted. So no number of silent connections excludes a
/// coordinator.
///
/// An attacker may have any number of /64 networks. Therefore the handshake to end is searched in the shortest prefixes
/// first: connections of one provider replace each other before those of others.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Vec<(Networks, AbortHandle)>);

impl Handshakes {
    /// Adds a new handshake, and ends another one if there are too many.
    pub(super) fn begin(&mut self, from: IpAddr, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        let from = networks(from);
        let present: Vec<Networks> = self.0.iter().map(|(from, _)| *from).collect();
        if let Some(place) = to_be_ended(&present, from) {
            let (_, task) = self.0.remove(place);
            task.abort();
        }
        self.0.push((from, task));
    }
}

/// The handshake that ends when another one arrives, given all of them, oldest first. If the new one's address has too
/// many, it is the oldest of that address. If there are too many in total, it is the oldest in the largest network,
/// within that in its largest subnetwork, and so on.
fn to_be_ended(present: &[Networks], newcomer: Networks) -> Option<usize> {
    let of_newcomer = || present.iter().filter(|other| other[2] == newcomer[2]);
    if of_newcomer().count() >= HANDSHAKES_PER_ADDRESS_MAX {
        return present.iter().position(|other| other[2] == newcomer[2]);
    }
    if present.len() < HANDSHAKES_MAX {
        return None;
    }
    let mut left: Vec<(usize, &Networks)> = present.iter().enumerate().collect();
    for width in [0, 1, 2] {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        left.iter().for_each(|(_, networks)| *counts.entry(networks[width]).or_default() += 1);
        let most = counts.values().max().copied()?;
        let crowd =
            left.iter().map(|(_, networks)| networks[width]).find(|net| counts[net] == most)?;
        left.retain(|(_, networks)| networks[width] == crowd);
    }
    left.first().map(|(place, _)| *place)
}

fn networks(address: IpAddr) -> Networks {
    match address.to_canonical() {
        IpAddr::V6(v6) => [32, 48, 64].map(|bits| {
            let rest = 128 - bits;
            Ipv6Addr::from_bits(v6.to_bits() >> rest << rest).into()
        }),
        IpAddr::V4(v4) => [16, 24, 32].map(|bits| {
            let rest = 32 - bits;
            Ipv4Addr::from_bits(v4.to_bits() >> rest << rest).into()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Networks {
        networks(IpAddr::from((0x0a00_0000 + u32::try_from(number).unwrap()).to_be_bytes()))
    }

    #[test]
    fn one_address_replaces_only_its_own_handshakes() {
        let mut present = vec![address(1)];
        present.extend([address(2); HANDSHAKES_PER_ADDRESS_MAX]);
        assert_eq!(to_be_ended(&present, address(2)), Some(1), "its own oldest");
        assert_eq!(to_be_ended(&present, address(1)), None);
        present.pop();
        assert_eq!(to_be_ended(&present, address(2)), None, "there is a place");
    }

    #[test]
    fn if_all_places_are_taken_the_largest_network_loses_one() {
        let mut present: Vec<Networks> = (0..HANDSHAKES_MAX).map(address).collect();
        assert_eq!(to_be_ended(&present, address(999)), Some(0), "the oldest of all");
        present[70] = address(90);
        assert_eq!(to_be_ended(&present, address(999)), Some(70), "the oldest of two");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let network = |text: &str| networks(text.parse().unwrap())[2];
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), address(1)[2]);
    }

    #[test]
    fn one_provider_with_any_number_of_networks_replaces_only_its_own_handshakes() {
        let v6 = |text: String| networks(text.parse().unwrap());
        let attackers: [fn(usize) -> String; 4] = [
            // Each handshake from another /64, /48, /64 and /48, or address.
            |n: usize| format!("2001:db8:1:{n:x}::1"),
            |n: usize| format!("2001:db8:{n:x}::1"),
            |n: usize| format!("2001:db8:{:x}:{n:x}::1", n % 50),
            |n: usize| format!("198.51.{}.{}", n / 250, n % 250),
        ];
        for attacker in attackers {
            // The honest one is the oldest.
            let mut present = vec![v6("2001:db9::1".to_owned()), v6("203.0.113.7".to_owned())];
            for number in 0..5_000 {
                let newcomer = v6(attacker(number));
                if let Some(ended) = to_be_ended(&present, newcomer) {
                    assert!(ended >= 2, "an honest handshake is ended");
                    present.remove(ended);
                }
                present.push(newcomer);
            }
            assert_eq!(present.len(), HANDSHAKES_MAX);
        }
    }
}
