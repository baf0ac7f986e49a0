//! The messages of a capacity test: the coordinator's order to each measurer, the ports, and the report.

use crate::check::plain;
use crate::server::Rules;
use coordinator::{PairSecond, is_local};
use measurer::capacity::{
    CapacityPeer, CapacityReport, CapacityTest, Lost, PORTS_MAX, PeerReport, Token,
};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Maximum number of other measurers in a test.
pub(crate) const PEERS_MAX: usize = 63;
/// Maximum length of a report, which has two numbers for each peer and second.
pub(crate) const ANSWER_MAX_BYTES: usize = 2 << 20;

/// Takes part in a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityOrder {
    /// Shared by all members, and drawn anew for each test.
    pub(crate) token: Token,
    /// The measurer's index in the team.
    pub(crate) index: u16,
    /// All other members, 1 to 63.
    pub(crate) peers: Vec<CapacityPeer>,
    /// The number of connections to each of them, 1 to 160.
    pub(crate) sockets: u16,
    /// Length of the load, 1 to 600.
    pub(crate) seconds: u32,
    /// Maximum rate to send; if `None`, the measurer's configured capacity.
    pub(crate) rate: Option<Rate>,
}

/// Starts a test: all members that take part listen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityStart {
    /// The ports of each peer of the order, in the same order. An absent peer has none.
    pub(crate) ports: Vec<Vec<u16>>,
    /// From the arrival of this message to the load, at most a minute.
    pub(crate) delay: Duration,
}

/// The report. Its peers are those of the order, in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    peers: Vec<AnsweredPeer>,
    /// Connections that were not a peer's.
    stranger_connections: u64,
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
    /// Why a connection to it was lost.
    send_error: Option<String>,
}

impl CapacityOrder {
    /// The test for a measurer with this capacity and these rules, for a coordinator at this address; or the error in the
    /// order.
    pub(crate) fn test(
        &self,
        capacity: Rate,
        coordinator: IpAddr,
        rules: &Rules,
    ) -> Result<CapacityTest, String> {
        if self.peers.len() > PEERS_MAX {
            return Err(format!("{} peers; the maximum is {PEERS_MAX}", self.peers.len()));
        }
        for peer in &self.peers {
            check_consent(peer, coordinator, rules)?;
        }
        let test = CapacityTest {
            index: self.index,
            peers: self.peers.clone(),
            token: self.token,
            sockets: self.sockets,
            seconds: self.seconds,
            rate: self.rate.unwrap_or(capacity),
        };
        test.check().map_err(|error| error.to_string())?;
        Ok(test)
    }
}

/// The rule of [`Consent`](measurer::Consent), for measurers: they are on no list of relays, so addresses count.
fn check_consent(peer: &CapacityPeer, coordinator: IpAddr, rules: &Rules) -> Result<(), String> {
    let ip = peer.address.ip().to_canonical();
    // A measurement policy is for relays of a consensus.
    let is_permitted =
        || rules.consent.check_for(coordinator, RsaId([0; 20]), ip, link::unix_time_s()).is_ok();
    if rules.peers.contains(&ip) || is_permitted() {
        return Ok(());
    }
    let kind = if is_local(ip) { "private" } else { "public" };
    Err(format!(
        "a capacity test floods its members: {ip} of member {} is {kind} and not among the allowed addresses. If its \
         operator agrees, add it to `peers`",
        peer.index
    ))
}

impl CapacityStart {
    /// Checks the ports for a test with this number of peers.
    pub(crate) fn check(&self, peers: usize) -> Result<(), String> {
        if self.ports.len() != peers {
            return Err(format!("the ports of {} peers instead of {peers}", self.ports.len()));
        }
        self.ports.iter().try_for_each(|ports| check_ports(ports))
    }
}

/// Checks the ports of a measurer.
pub(crate) fn check_ports(ports: &[u16]) -> Result<(), String> {
    if ports.len() > PORTS_MAX || ports.contains(&0) {
        return Err(format!("a measurer has at most {PORTS_MAX} ports, and none is 0: {ports:?}"));
    }
    Ok(())
}

impl From<&CapacityReport> for CapacityAnswer {
    fn from(report: &CapacityReport) -> Self {
        let peer = |peer: &PeerReport| AnsweredPeer {
            sent_bytes: peer.seconds.iter().map(|second| second.sent_bytes).collect(),
            received_bytes: peer.seconds.iter().map(|second| second.received_bytes).collect(),
            lost: peer.lost,
            send_error: peer.send_error.as_deref().map(plain),
        };
        Self {
            peers: report.peers.iter().map(peer).collect(),
            stranger_connections: report.stranger_connections,
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
            peers: pairs
                .map(|(answered, peer)| answered.report(seconds, *peer))
                .collect::<Result<_, _>>()?,
            stranger_connections: self.stranger_connections,
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
            send_error: self.send_error.as_deref().map(plain),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::HandedList;
    use measurer::Consent;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn team() -> Vec<CapacityPeer> {
        let addresses = ["10.0.0.1:1", "10.0.0.2:2", "[fd00::1]:3"];
        let peer = |(index, address): (u16, &str)| CapacityPeer {
            index,
            address: address.parse().expect("an address"),
        };
        (0..).zip(addresses).map(peer).collect()
    }

    fn order() -> CapacityOrder {
        let team = team();
        CapacityOrder {
            token: Token::from_bytes([5; 32]),
            index: 1,
            peers: vec![team[0], team[2]],
            sockets: 80,
            seconds: 60,
            rate: None,
        }
    }

    fn rules(peers: &[&str]) -> Rules {
        Rules {
            coordinators: Vec::new(),
            consent: Consent::local_only(),
            peers: peers.iter().map(|peer| peer.parse().expect("an address")).collect(),
            handed: HandedList::Ignored,
        }
    }

    #[test]
    fn an_order_gives_the_test() {
        let capacity = Rate::from_mbit_per_s(7.0);
        let test = order().test(capacity, HERE, &rules(&[])).expect("makes sense");
        assert_eq!((test.index, test.seconds, test.sockets), (1, 60, 80));
        assert_eq!((test.rate, test.token), (capacity, Token::from_bytes([5; 32])));
        assert_eq!(test.peers, [team()[0], team()[2]]);
        assert_eq!(test.sockets_total(), 320);
    }

    #[test]
    fn an_impossible_order_is_refused() {
        let refused = |change: &dyn Fn(&mut CapacityOrder)| {
            let mut order = order();
            change(&mut order);
            order.test(Rate::from_mbit_per_s(7.0), HERE, &rules(&[])).expect_err("refused")
        };
        let many = refused(&|order| order.peers = vec![order.peers[0]; PEERS_MAX + 1]);
        assert!(many.contains("64 peers"));
        assert!(refused(&|order| order.peers.clear()).contains("not 0"));
        assert!(refused(&|order| order.seconds = 0).contains("1 to 600 seconds"));
        assert!(refused(&|order| order.seconds = 601).contains("1 to 600 seconds"));
        assert!(refused(&|order| order.sockets = 0).contains("1 to 160 connections"));
        assert!(refused(&|order| order.sockets = 161).contains("1 to 160 connections"));
        assert!(refused(&|order| order.rate = Some(Rate::ZERO)).contains("rate"));
        assert!(refused(&|order| order.peers[1].index = 1).contains("the index 1"));
        assert!(refused(&|order| order.peers[1].index = 0).contains("the index 0"));
        let same = refused(&|order| order.peers[1].address = order.peers[0].address);
        assert!(same.contains("the address 10.0.0.1:1"), "{same}");
    }

    #[test]
    fn a_coordinator_elsewhere_reaches_only_listed_peers() {
        let (capacity, elsewhere) = (Rate::from_mbit_per_s(7.0), IpAddr::from([10, 0, 0, 9]));
        let both = rules(&["10.0.0.1", "fd00::1"]);
        let refused = |at, rules: &Rules| order().test(capacity, at, rules).map(drop);
        let text = refused(elsewhere, &rules(&["10.0.0.1"])).expect_err("not listed");
        assert!(text.contains("fd00::1 of member 2 is private") && text.contains("`peers`"));
        assert_eq!(refused(elsewhere, &both), Ok(()));
        let mut private = rules(&[]);
        private.consent = Consent::local_only().in_private_network(true);
        assert_eq!(refused(elsewhere, &private), Ok(()));
        let mut order = order();
        order.peers[0].address = "198.51.100.7:1".parse().expect("an address");
        for rules in [&private, &both] {
            let text = order.test(capacity, HERE, rules).expect_err("public");
            assert!(text.contains("198.51.100.7 of member 0 is public"), "{text}");
        }
        let listed = Rules { peers: BTreeSet::from([order.peers[0].address.ip()]), ..private };
        order.test(capacity, elsewhere, &listed).expect("listed");
    }

    #[test]
    fn impossible_ports_are_refused() {
        let start = |ports: Vec<Vec<u16>>| CapacityStart { ports, delay: Duration::ZERO }.check(2);
        assert_eq!(start(vec![vec![1; PORTS_MAX], vec![]]), Ok(()));
        assert!(start(vec![vec![1]]).is_err());
        assert!(start(vec![vec![1], vec![0]]).is_err());
        assert!(start(vec![vec![1; PORTS_MAX + 1], vec![]]).is_err());
    }

    proptest! {
        #[test]
        fn a_report_survives_the_messages(
            traffic in prop::collection::vec((any::<u64>(), any::<u64>()), 2),
            lost in 0usize..4, number: u32, stranger_connections: u64,
        ) {
            let lost = [
                None, Some(Lost::NeverProved), Some(Lost::Silent { second: number }),
                Some(Lost::Disconnected { open: number, planned: 8 }),
            ][lost];
            let seconds = traffic.iter().map(|(sent_bytes, received_bytes)| {
                PairSecond { sent_bytes: *sent_bytes, received_bytes: *received_bytes }
            });
            let peer = PeerReport {
                peer: team()[0],
                seconds: seconds.collect(),
                lost,
                send_error: Some("no".to_owned()),
            };
            let report = CapacityReport { index: 1, peers: vec![peer], stranger_connections };
            let answer = CapacityAnswer::from(&report);
            prop_assert_eq!(answer.report(1, 2, &team()[..1]), Ok(report));
            prop_assert!(answer.report(1, 3, &team()[..1]).is_err(), "a second is missing");
            prop_assert!(answer.report(1, 2, &team()).is_err(), "peers are missing");
        }
    }
}
