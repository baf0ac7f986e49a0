//! The messages of a capacity test: the coordinator's order to each measurer, and its report.

use crate::check::plain;
use coordinator::PairSecond;
use measurer::capacity::{CapacityPeer, CapacityReport, CapacityTest, Lost, PeerReport, Token};
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of other measurers in a test.
pub(crate) const PEERS_MAX: usize = 63;
/// Maximum length of a report, which has two numbers for each peer and second.
pub(crate) const ANSWER_MAX_BYTES: usize = 2 << 20;

/// Takes part in a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityOrder {
    /// Shared by all members, and drawn anew for each test.
    token: Token,
    /// The measurer's index in the team.
    index: u16,
    /// All other members, 1 to 63. UDP goes to the port of their control plane.
    peers: Vec<CapacityPeer>,
    /// Length of the flood, 1 to 600.
    seconds: u32,
    /// From the arrival of this message to the flood, at most a minute.
    delay: Duration,
    /// Maximum rate to send; if `None`, the measurer's configured capacity.
    rate: Option<Rate>,
}

/// The report. Its peers are those of the order, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    peers: Vec<AnsweredPeer>,
    /// Packets that were not a peer's.
    stranger_packets: u64,
}

/// The exchange with a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AnsweredPeer {
    /// Bytes sent in each second.
    sent_bytes: Vec<u64>,
    /// Bytes received in each second.
    received_bytes: Vec<u64>,
    /// The reason why it was lost, if it was.
    lost: Option<Lost>,
    /// Replayed packets.
    repeated_packets: u64,
    /// An error of the operating system while sending.
    send_error: Option<String>,
}

impl CapacityOrder {
    /// The order for member `index` of a team, whose addresses are in the order of their indices.
    pub(crate) fn new(
        token: Token,
        index: u16,
        team: &[CapacityPeer],
        seconds: u32,
        delay: Duration,
        rate: Option<Rate>,
    ) -> Self {
        let peers = team.iter().filter(|it| it.index != index).copied().collect();
        Self { token, index, peers, seconds, delay, rate }
    }

    /// The test for a measurer with this listen address and capacity, which may flood these public addresses; or the
    /// error in the order. The test itself checks the rest.
    pub(crate) fn test(
        &self,
        listen: SocketAddr,
        capacity: Rate,
        allowed: &BTreeSet<IpAddr>,
    ) -> Result<CapacityTest, String> {
        if self.peers.len() > PEERS_MAX {
            return Err(format!("{} peers; the maximum is {PEERS_MAX}", self.peers.len()));
        }
        if let Some(peer) = self.peers.iter().find(|it| it.address.port() == 0) {
            return Err(format!("no port of member {}", peer.index));
        }
        Ok(CapacityTest {
            listen,
            index: self.index,
            peers: self.peers.clone(),
            token: self.token,
            seconds: self.seconds,
            start_delay: self.delay,
            rate: self.rate.unwrap_or(capacity),
            allowed: allowed.clone(),
        })
    }
}

impl From<&CapacityReport> for CapacityAnswer {
    fn from(report: &CapacityReport) -> Self {
        let peer = |it: &PeerReport| AnsweredPeer {
            sent_bytes: it.seconds.iter().map(|second| second.sent_bytes).collect(),
            received_bytes: it.seconds.iter().map(|second| second.received_bytes).collect(),
            lost: it.lost,
            repeated_packets: it.repeated_packets,
            send_error: it.send_error.as_deref().map(plain),
        };
        Self {
            peers: report.peers.iter().map(peer).collect(),
            stranger_packets: report.stranger_packets,
        }
    }
}

impl CapacityAnswer {
    /// The report of member `index` with these peers; or the error in it.
    pub(crate) fn report(
        &self,
        index: u16,
        seconds: u32,
        peers: &[CapacityPeer],
    ) -> Result<CapacityReport, String> {
        if self.peers.len() != peers.len() {
            return Err(format!("it reports {} peers of {}", self.peers.len(), peers.len()));
        }
        let pairs = self.peers.iter().zip(peers);
        Ok(CapacityReport {
            index,
            peers: pairs.map(|(it, peer)| it.report(seconds, *peer)).collect::<Result<_, _>>()?,
            stranger_packets: self.stranger_packets,
        })
    }
}

impl AnsweredPeer {
    fn report(&self, seconds: u32, peer: CapacityPeer) -> Result<PeerReport, String> {
        let counts = [self.sent_bytes.len(), self.received_bytes.len()];
        if counts.iter().any(|count| u32::try_from(*count) != Ok(seconds)) {
            return Err(format!("it reports {counts:?} seconds instead of {seconds}"));
        }
        let pairs = self.sent_bytes.iter().zip(&self.received_bytes);
        Ok(PeerReport {
            peer,
            seconds: pairs
                .map(|(sent_bytes, received_bytes)| PairSecond {
                    sent_bytes: *sent_bytes,
                    received_bytes: *received_bytes,
                })
                .collect(),
            lost: self.lost,
            repeated_packets: self.repeated_packets,
            send_error: self.send_error.as_deref().map(plain),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);

    fn team() -> Vec<CapacityPeer> {
        let addresses = ["10.0.0.1:1", "10.0.0.2:2", "[fd00::1]:3"];
        let peer = |(index, address): (u16, &str)| CapacityPeer {
            index,
            address: address.parse().expect("an address"),
        };
        (0..).zip(addresses).map(peer).collect()
    }

    fn order() -> CapacityOrder {
        let token = Token::from_bytes([5; 32]);
        CapacityOrder::new(token, 1, &team(), 60, Duration::from_secs(3), None)
    }

    #[test]
    fn an_order_gives_the_test() {
        let (capacity, allowed) = (Rate::from_mbit_per_s(7.0), BTreeSet::from([LISTEN.ip()]));
        let test = order().test(LISTEN, capacity, &allowed).expect("makes sense");
        assert_eq!((test.listen, test.index, test.seconds), (LISTEN, 1, 60));
        assert_eq!((test.rate, test.allowed), (capacity, allowed));
        assert_eq!(test.token, Token::from_bytes([5; 32]));
        assert_eq!(test.start_delay, Duration::from_secs(3));
        assert_eq!(test.peers, [team()[0], team()[2]]);
    }

    #[test]
    fn an_impossible_order_is_refused() {
        let refused = |change: &dyn Fn(&mut CapacityOrder)| {
            let mut order = order();
            change(&mut order);
            order.test(LISTEN, Rate::ZERO, &BTreeSet::new()).expect_err("refused")
        };
        assert!(refused(&|it| it.peers[1].address.set_port(0)).contains("member 2"));
        let many = refused(&|it| it.peers = vec![it.peers[0]; PEERS_MAX + 1]);
        assert!(many.contains("64 peers"));
    }

    proptest! {
        #[test]
        fn a_report_survives_the_messages(
            traffic in prop::collection::vec((any::<u64>(), any::<u64>()), 2),
            lost in 0usize..4, second in prop::option::of(0u32..2), stranger_packets: u64,
        ) {
            let lost = [
                None, Some(Lost::NeverProved), Some(Lost::Silent { second }),
                Some(Lost::Cancelled { second }),
            ][lost];
            let seconds = traffic.iter().map(|(sent_bytes, received_bytes)| {
                PairSecond { sent_bytes: *sent_bytes, received_bytes: *received_bytes }
            });
            let peer = PeerReport {
                peer: team()[0],
                seconds: seconds.collect(),
                lost,
                repeated_packets: 3,
                send_error: Some("no".to_owned()),
            };
            let report = CapacityReport { index: 1, peers: vec![peer], stranger_packets };
            let answer = CapacityAnswer::from(&report);
            prop_assert_eq!(answer.report(1, 2, &team()[..1]), Ok(report));
            prop_assert!(answer.report(1, 3, &team()[..1]).is_err(), "a second is missing");
            prop_assert!(answer.report(1, 2, &team()).is_err(), "peers are missing");
        }
    }
}
