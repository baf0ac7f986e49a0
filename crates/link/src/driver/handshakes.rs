use onion::router::Place;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Sockets ready to continue their TLS handshake, served round-robin by the network of the peer. A
/// flood from one network delays that network only.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    sockets: BTreeMap<Option<Place>, VecDeque<usize>>,
    order: VecDeque<Option<Place>>,
}

impl Handshakes {
    /// Queues a socket with the peer's address; `None` if the peer is gone.
    pub(super) fn push(&mut self, peer: Option<IpAddr>, socket: usize) {
        let place = peer.map(Place::of);
        let waiting = self.sockets.entry(place).or_default();
        if waiting.is_empty() {
            self.order.push_back(place);
        }
        waiting.push_back(socket);
    }

    /// The next socket.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let place = self.order.pop_front()?;
        let waiting = self.sockets.get_mut(&place)?;
        let socket = waiting.pop_front();
        if waiting.is_empty() {
            self.sockets.remove(&place);
        } else {
            self.order.push_back(place);
        }
        socket
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_waits_behind_one_of_each_network() {
        let mut handshakes = Handshakes::default();
        let flooders = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect("an address"));
        for socket in 0..100 {
            handshakes.push(Some(flooders[socket % 2]), socket);
        }
        // Addresses of one IPv6 network count together.
        for (host, socket) in [(1, 200), (2, 201)] {
            handshakes.push(Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host])), socket);
        }
        let order: Vec<usize> = std::iter::from_fn(|| handshakes.pop()).collect();
        assert_eq!(order[..7], [0, 1, 200, 2, 3, 201, 4]);
        assert_eq!(order.len(), 102);
        assert!(handshakes.is_empty() && handshakes.sockets.is_empty());
    }
}
