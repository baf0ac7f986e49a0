use onion::router::Place;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Sockets whose TLS handshake can go on, by where the other end is: each place has its turn. Who floods a relay with
/// connections waits behind himself, and a newcomer behind one of each place.
#[derive(Debug, Default)]
pub(super) struct Shaking {
    sockets: BTreeMap<Option<Place>, VecDeque<usize>>,
    turns: VecDeque<Option<Place>>,
}

impl Shaking {
    /// A socket with its other end there; nowhere, if that is gone already.
    pub(super) fn push(&mut self, other_end: Option<IpAddr>, socket: usize) {
        let place = other_end.map(Place::of);
        let waiting = self.sockets.entry(place).or_default();
        if waiting.is_empty() {
            self.turns.push_back(place);
        }
        waiting.push_back(socket);
    }

    /// The one whose turn it is.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let place = self.turns.pop_front()?;
        let waiting = self.sockets.get_mut(&place)?;
        let socket = waiting.pop_front();
        if waiting.is_empty() {
            self.sockets.remove(&place);
        } else {
            self.turns.push_back(place);
        }
        socket
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_waits_behind_one_of_each_place() {
        let mut shaking = Shaking::default();
        let flooders = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect("an address"));
        for socket in 0..100 {
            shaking.push(Some(flooders[socket % 2]), socket);
        }
        // Addresses of one network of IPv6 are one place.
        for (host, socket) in [(1, 200), (2, 201)] {
            shaking.push(Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host])), socket);
        }
        let order: Vec<usize> = std::iter::from_fn(|| shaking.pop()).collect();
        assert_eq!(order[..7], [0, 1, 200, 2, 3, 201, 4]);
        assert_eq!(order.len(), 102);
        assert!(shaking.is_empty() && shaking.sockets.is_empty());
    }
}
