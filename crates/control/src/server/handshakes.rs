//! Strangers at the door: connections whose handshake is not over.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::task::AbortHandle;

/// Handshakes at once.
const HANDSHAKES_MAX: usize = 256;

/// Of these, from one address; for IPv6, from one network of 64 bits, which is what one stranger has.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;

/// The networks that an address is in, the widest first: what a provider has, what a customer has, what one stranger has.
type Networks = [IpAddr; 3];

/// The handshakes under way. A newcomer that finds all places taken gets the place that somebody has
/// had for longest: an honest handshake takes as long as a few round trips, silence as long as we let it.
/// So no number of silent connections keeps a coordinator out.
///
/// An attacker may have any number of IPv6 networks of 64 bits. Whose handshake ends is therefore looked for in the widest networks
/// first: those of one provider push out each other before anybody else.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Vec<(Networks, AbortHandle)>);

impl Handshakes {
    /// Notes a handshake that has begun, and ends another one if they are too many.
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

/// Which handshake, oldest first, ends when another one comes: the oldest of the newcomer's address where that has too
/// many, or if there are too many in all the oldest of the network that has most, of its network that has most, and so on.
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
        left.iter().for_each(|(_, it)| *counts.entry(it[width]).or_default() += 1);
        let most = counts.values().max().copied()?;
        let crowd = left.iter().map(|(_, it)| it[width]).find(|net| counts[net] == most)?;
        left.retain(|(_, it)| it[width] == crowd);
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
    fn one_address_pushes_out_only_itself() {
        let mut present = vec![address(1)];
        present.extend([address(2); HANDSHAKES_PER_ADDRESS_MAX]);
        assert_eq!(to_be_ended(&present, address(2)), Some(1), "its own oldest");
        assert_eq!(to_be_ended(&present, address(1)), None);
        present.pop();
        assert_eq!(to_be_ended(&present, address(2)), None, "there is a place");
    }

    #[test]
    fn where_all_is_full_the_largest_crowd_gives_way() {
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
    fn one_provider_with_any_number_of_networks_pushes_out_only_itself() {
        let v6 = |text: String| networks(text.parse().unwrap());
        let attackers: [fn(usize) -> String; 4] = [
            // Each handshake from another /64, /48, /64 and /48, or address.
            |n: usize| format!("2001:db8:1:{n:x}::1"),
            |n: usize| format!("2001:db8:{n:x}::1"),
            |n: usize| format!("2001:db8:{:x}:{n:x}::1", n % 50),
            |n: usize| format!("198.51.{}.{}", n / 250, n % 250),
        ];
        for attacker in attackers {
            // The honest one has come first, and has taken longest of all.
            let mut present = vec![v6("2001:db9::1".to_owned()), v6("203.0.113.7".to_owned())];
            for number in 0..5_000 {
                let newcomer = v6(attacker(number));
                if let Some(ended) = to_be_ended(&present, newcomer) {
                    assert!(ended >= 2, "an honest one is ended");
                    present.remove(ended);
                }
                present.push(newcomer);
            }
            assert_eq!(present.len(), HANDSHAKES_MAX);
        }
    }
}
