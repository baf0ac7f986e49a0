//! Accepted connections whose TLS handshake is not complete.

use onion::router::Place;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Limit on their number. A TCP connection costs the peer nothing, while each holds a file
/// descriptor and some kilobytes until its handshake times out. Up to this number of handshakes
/// complete within that time.
const PENDING_MAX: usize = 4096;

/// Connections in their handshake, by the network of the peer and in order of arrival.
///
/// At the limit, the latest connection of the network with the most connections is closed: a peer
/// that opens idle connections displaces only its own. Among networks with the same number it is
/// the one whose first connection is oldest. An attacker with many networks therefore displaces
/// only peers that are slower than its own connections. Each operation takes logarithmic time.
#[derive(Debug)]
pub(super) struct PendingAccepts {
    max: usize,
    by_socket: BTreeMap<usize, (Place, u64)>,
    by_network: BTreeMap<Place, BTreeMap<u64, usize>>,
    /// The number of connections of each network, and the arrival of the first of them.
    by_count: BTreeSet<(usize, Reverse<u64>, Place)>,
    accepted: u64,
}

impl PendingAccepts {
    /// For a driver with at most `connections_max` connections. Half of them may be in their
    /// handshake, which leaves room for open ones.
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            max: (connections_max / 2).clamp(1, PENDING_MAX),
            by_socket: BTreeMap::new(),
            by_network: BTreeMap::new(),
            by_count: BTreeSet::new(),
            accepted: 0,
        }
    }

    /// Adds a connection. Returns the socket to close if the limit is exceeded.
    pub(super) fn add(&mut self, from: IpAddr, socket: usize) -> Option<usize> {
        let place = Place::of(from);
        let number = self.accepted;
        self.accepted += 1;
        self.by_socket.insert(socket, (place, number));
        self.change(place, |sockets| {
            sockets.insert(number, socket);
        });
        if self.by_socket.len() <= self.max {
            return None;
        }
        let (_, _, most) = self.by_count.last()?;
        let (_, newest) = self.by_network.get(most)?.last_key_value()?;
        Some(*newest)
    }

    /// Removes a connection whose handshake has ended. Has no effect on others.
    pub(super) fn remove(&mut self, socket: usize) {
        let Some((place, number)) = self.by_socket.remove(&socket) else { return };
        self.change(place, |sockets| {
            sockets.remove(&number);
        });
    }

    fn change(&mut self, place: Place, change: impl FnOnce(&mut BTreeMap<u64, usize>)) {
        let sockets = self.by_network.entry(place).or_default();
        let key = |sockets: &BTreeMap<u64, usize>| {
            let (first, _) = sockets.first_key_value()?;
            Some((sockets.len(), Reverse(*first), place))
        };
        if let Some(before) = key(sockets) {
            self.by_count.remove(&before);
        }
        change(sockets);
        if let Some(now) = key(sockets) {
            self.by_count.insert(now);
        } else {
            self.by_network.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a connection and removes the victim, which it returns.
    fn arrive(pending: &mut PendingAccepts, from: [u8; 4], socket: usize) -> Option<usize> {
        let victim = pending.add(from.into(), socket);
        victim.into_iter().for_each(|socket| pending.remove(socket));
        victim
    }

    #[test]
    fn idle_connections_displace_only_those_of_their_own_network() {
        let mut pending = PendingAccepts::new(usize::MAX);
        assert_eq!(arrive(&mut pending, [192, 0, 2, 1], 100_000), None);
        for socket in 0..20_000_usize {
            let flooder = u8::try_from(socket % 24).expect("few");
            let victim = arrive(&mut pending, [198, 51, 100, flooder], socket);
            assert!(
                victim.is_none_or(|victim| victim < 100_000 && victim + 48 > socket),
                "{victim:?}"
            );
        }
        for honest in 2..=200 {
            let victim = arrive(&mut pending, [192, 0, 2, honest], 100_000 + usize::from(honest));
            assert!(victim.is_some_and(|victim| victim < 100_000), "a flooder's: {victim:?}");
        }
        assert_eq!(pending.by_socket.len(), PENDING_MAX);
        assert!((100_002..=100_200).all(|socket| pending.by_socket.contains_key(&socket)));
        // With one connection of each network the limit still applies.
        let sockets: Vec<usize> = pending.by_socket.keys().copied().collect();
        sockets.into_iter().for_each(|socket| pending.remove(socket));
        assert!(pending.by_network.is_empty() && pending.by_count.is_empty());
        for number in 0..u32::try_from(PENDING_MAX).expect("few") + 10 {
            arrive(&mut pending, number.to_be_bytes(), number as usize);
        }
        assert_eq!(pending.by_socket.len(), PENDING_MAX);
    }

    #[test]
    fn many_networks_displace_only_slower_connections() {
        let mut pending = PendingAccepts::new(usize::MAX);
        let most = u32::try_from(PENDING_MAX).expect("few");
        (0..most)
            .for_each(|number| _ = arrive(&mut pending, number.to_be_bytes(), number as usize));
        // A new connection is kept, whatever its address, and the oldest is closed.
        let honest: [IpAddr; 3] = ["2001:db8::1", "255.255.255.254", "0.0.255.255"]
            .map(|text| text.parse().expect("an address"));
        for (nth, from) in honest.into_iter().enumerate() {
            assert_eq!(pending.add(from, 10_000_000 + nth), Some(nth), "{from}");
            pending.remove(nth);
        }
        // The same number again arrives and is slower than the connections already closed.
        for number in most..most * 2 - 3 {
            let victim = arrive(&mut pending, number.to_be_bytes(), number as usize);
            assert!(victim.is_some_and(|victim| victim < 10_000_000), "{victim:?}");
        }
    }

    #[test]
    fn open_connections_keep_half_of_the_limit() {
        let mut pending = PendingAccepts::new(100);
        for number in 0..200_u32 {
            arrive(&mut pending, number.to_be_bytes(), number as usize);
        }
        assert_eq!(pending.by_socket.len(), 50);
    }
}
