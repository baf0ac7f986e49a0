//! Strangers at the door: connections whose handshake is not over.

use std::net::{IpAddr, Ipv6Addr};
use tokio::task::AbortHandle;

/// Handshakes at once.
const HANDSHAKES_MAX: usize = 256;

/// Of these, from one address; for IPv6, from one network of 64 bits, which is what one stranger has.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;

/// The handshakes under way. Whoever comes when all places are taken gets the place that somebody has
/// had for longest: an honest handshake takes as long as a few round trips, silence as long as we let it.
/// So no number of silent connections keeps a coordinator out.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Vec<(IpAddr, AbortHandle)>);

impl Handshakes {
    /// Notes a handshake that has begun, and ends another one if they are too many.
    pub(super) fn begin(&mut self, from: IpAddr, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        let from = network(from);
        let present: Vec<IpAddr> = self.0.iter().map(|(from, _)| *from).collect();
        if let Some(place) = to_be_ended(&present, from) {
            let (_, task) = self.0.remove(place);
            task.abort();
        }
        self.0.push((from, task));
    }
}

/// Which handshake, oldest first, ends when another one comes: the oldest from where there are too
/// many, or if there are too many in all the oldest from where there are most.
fn to_be_ended(present: &[IpAddr], newcomer: IpAddr) -> Option<usize> {
    let count = |from: &IpAddr| present.iter().filter(|other| *other == from).count();
    let crowd = if count(&newcomer) >= HANDSHAKES_PER_ADDRESS_MAX {
        newcomer
    } else if present.len() >= HANDSHAKES_MAX {
        let most = present.iter().map(count).max()?;
        *present.iter().find(|from| count(from) == most)?
    } else {
        return None;
    };
    present.iter().position(|from| *from == crowd)
}

/// What one stranger has of addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from((0x0a00_0000 + u32::try_from(number).unwrap()).to_be_bytes())
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
        let mut present: Vec<IpAddr> = (0..HANDSHAKES_MAX).map(address).collect();
        assert_eq!(to_be_ended(&present, address(999)), Some(0), "the oldest of all");
        present[70] = address(90);
        assert_eq!(to_be_ended(&present, address(999)), Some(70), "the oldest of two");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), address(1));
    }
}
