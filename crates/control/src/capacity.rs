//! A capacity test as messages: what the coordinator orders each measurer, and what it reports.
//!
//! ```proto
//! service Measurer { rpc Capacity(CapacityOrder) returns (CapacityAnswer); }
//! ```

use crate::convert::plain;
use coordinator::PairSecond;
use measurer::capacity::{CapacityPeer, CapacityReport, CapacityTest, Lost, PeerReport, Token};
use onion::{Duration, Rate};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Most other measurers in a test that is ordered from afar.
pub(crate) const PEERS_MAX: usize = 63;
/// No report is longer: of each second and peer it has two numbers.
pub(crate) const ANSWER_MAX_BYTES: usize = 2 << 20;

/// Take part in a test.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CapacityOrder {
    /// What all members share: 32 bytes, drawn anew for each test.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// The measurer's index in the team.
    #[prost(uint32, tag = "2")]
    pub index: u32,
    /// All others, 1 to 63.
    #[prost(message, repeated, tag = "3")]
    pub peers: Vec<OrderedPeer>,
    /// Length of the flood, 1 to 600.
    #[prost(uint32, tag = "4")]
    pub seconds: u32,
    /// From the arrival of this message to the flood, a minute at most.
    #[prost(uint64, tag = "5")]
    pub delay_ns: u64,
    /// What to send at most; zero for all that the measurer's configuration permits.
    #[prost(uint64, tag = "6")]
    pub rate_bit_per_s: u64,
}

/// A peer. UDP goes to the port of its control plane.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OrderedPeer {
    /// Its index in the team.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Its IP address: 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub address: Vec<u8>,
    /// Its port, 1 to 65,535.
    #[prost(uint32, tag = "3")]
    pub port: u32,
}

/// A report. Its peers are those of the order, in the same order.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CapacityAnswer {
    /// What was exchanged with each.
    #[prost(message, repeated, tag = "1")]
    pub peers: Vec<AnsweredPeer>,
    /// Packets that were not a peer's.
    #[prost(uint64, tag = "2")]
    pub stranger_packets: u64,
}

/// What was exchanged with a peer.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnsweredPeer {
    /// Bytes sent in each second.
    #[prost(uint64, repeated, tag = "1")]
    pub sent_bytes: Vec<u64>,
    /// Bytes received in each second.
    #[prost(uint64, repeated, tag = "2")]
    pub received_bytes: Vec<u64>,
    /// Why it was lost: 0 it was not, 1 it never proved itself, 2 it fell silent, 3 it gave up.
    #[prost(uint32, tag = "3")]
    pub lost: u32,
    /// In which second, if after the start.
    #[prost(uint32, optional, tag = "4")]
    pub lost_in: Option<u32>,
    /// Packets that came again.
    #[prost(uint64, tag = "5")]
    pub repeated_packets: u64,
    /// What the operating system said to what we sent.
    #[prost(string, optional, tag = "6")]
    pub send_error: Option<String>,
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
        let peer = |it: &CapacityPeer| OrderedPeer {
            index: it.index.into(),
            address: match it.address.ip() {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            },
            port: it.address.port().into(),
        };
        Self {
            token: token.to_bytes().to_vec(),
            index: index.into(),
            peers: team.iter().filter(|it| it.index != index).map(peer).collect(),
            seconds,
            delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
            rate_bit_per_s: rate.map_or(0, Rate::as_bit_per_s),
        }
    }

    /// The test that is ordered of a measurer that listens there, has this capacity, and may flood
    /// these public addresses. Or what is wrong with the order; the rest the test checks itself.
    pub(crate) fn test(
        &self,
        listen: SocketAddr,
        capacity: Rate,
        allowed: &BTreeSet<IpAddr>,
    ) -> Result<CapacityTest, String> {
        let token = <[u8; 32]>::try_from(self.token.as_slice());
        let token = token.map_err(|_| format!("a token of {} bytes", self.token.len()))?;
        if self.peers.len() > PEERS_MAX {
            return Err(format!("{} peers; the most is {PEERS_MAX}", self.peers.len()));
        }
        let rate = match self.rate_bit_per_s {
            0 => capacity,
            bits => Rate::from_bit_per_s(bits),
        };
        Ok(CapacityTest {
            listen,
            index: index(self.index)?,
            peers: self.peers.iter().map(OrderedPeer::peer).collect::<Result<_, _>>()?,
            token: Token::from_bytes(token),
            seconds: self.seconds,
            start_delay: Duration::from_nanos(self.delay_ns),
            rate,
            allowed: allowed.clone(),
        })
    }
}

fn index(index: u32) -> Result<u16, String> {
    u16::try_from(index).map_err(|_| format!("an index of {index}"))
}

impl OrderedPeer {
    fn peer(&self) -> Result<CapacityPeer, String> {
        let ip = match self.address.as_slice() {
            four if four.len() == 4 => <[u8; 4]>::try_from(four).ok().map(IpAddr::from),
            other => <[u8; 16]>::try_from(other).ok().map(IpAddr::from),
        };
        let port = u16::try_from(self.port).ok().filter(|port| *port != 0);
        match (ip, port) {
            (Some(ip), Some(port)) => {
                Ok(CapacityPeer { index: index(self.index)?, address: SocketAddr::new(ip, port) })
            }
            _ => Err(format!("no address of member {}", self.index)),
        }
    }
}

impl From<&CapacityReport> for CapacityAnswer {
    fn from(report: &CapacityReport) -> Self {
        let peer = |it: &PeerReport| {
            let (lost, lost_in) = match it.lost {
                None => (0, None),
                Some(Lost::NeverProved) => (1, None),
                Some(Lost::Silent { second }) => (2, second),
                Some(Lost::Cancelled { second }) => (3, second),
            };
            AnsweredPeer {
                sent_bytes: it.seconds.iter().map(|second| second.sent_bytes).collect(),
                received_bytes: it.seconds.iter().map(|second| second.received_bytes).collect(),
                lost,
                lost_in,
                repeated_packets: it.repeated_packets,
                send_error: it.send_error.as_deref().map(plain),
            }
        };
        Self {
            peers: report.peers.iter().map(peer).collect(),
            stranger_packets: report.stranger_packets,
        }
    }
}

impl CapacityAnswer {
    /// The report of member `index`, which had these peers. Or what is wrong with it.
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
        let second = self.lost_in;
        Ok(PeerReport {
            peer,
            seconds: pairs
                .map(|(sent_bytes, received_bytes)| PairSecond {
                    sent_bytes: *sent_bytes,
                    received_bytes: *received_bytes,
                })
                .collect(),
            lost: match self.lost {
                0 => None,
                1 => Some(Lost::NeverProved),
                2 => Some(Lost::Silent { second }),
                3 => Some(Lost::Cancelled { second }),
                other => return Err(format!("it lost a peer for a reason {other}")),
            },
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
    fn an_order_comes_back_as_the_test() {
        let (capacity, allowed) = (Rate::from_mbit_per_s(7.0), BTreeSet::from([LISTEN.ip()]));
        let test = order().test(LISTEN, capacity, &allowed).expect("makes sense");
        assert_eq!((test.listen, test.index, test.seconds), (LISTEN, 1, 60));
        assert_eq!((test.rate, test.allowed), (capacity, allowed));
        assert_eq!(test.token, Token::from_bytes([5; 32]));
        assert_eq!(test.start_delay, Duration::from_secs(3));
        assert_eq!(test.peers, [team()[0], team()[2]]);
    }

    #[test]
    fn an_order_that_cannot_be_is_refused() {
        let refused = |change: &dyn Fn(&mut CapacityOrder)| {
            let mut order = order();
            change(&mut order);
            order.test(LISTEN, Rate::ZERO, &BTreeSet::new()).expect_err("refused")
        };
        assert!(refused(&|it| it.token = vec![1; 31]).contains("31 bytes"));
        assert!(refused(&|it| it.index = 65_536).contains("65536"));
        assert!(refused(&|it| it.peers[1].port = 0).contains("member 2"));
        assert!(refused(&|it| it.peers[0].address = vec![1; 5]).contains("member 0"));
        let many = refused(&|it| it.peers = vec![it.peers[0].clone(); PEERS_MAX + 1]);
        assert!(many.contains("64 peers"));
    }

    proptest! {
        #[test]
        fn a_report_comes_back(
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
