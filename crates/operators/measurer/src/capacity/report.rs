use coordinator::{MemberTraffic, PairSecond, PairTraffic};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// Another measurer of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPeer {
    /// Its index in the team.
    pub index: u16,
    /// The source and destination address of its packets.
    pub address: SocketAddr,
}

/// The reason why the exchange with a peer ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It did not prove in time that it is present and knows the token: it was never flooded.
    NeverProved,
    /// For five seconds, or in the last second, it did not prove that it is alive and receives our packets.
    Silent {
        /// The second of the timeout; `None` before the first.
        second: Option<u32>,
    },
    /// It reported that it gives up.
    Cancelled {
        /// The second of the report; `None` before the first.
        second: Option<u32>,
    },
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_second = |second: &Option<u32>| match second {
            Some(second) => format!("in second {second}"),
            None => "before the start".to_owned(),
        };
        match self {
            Self::NeverProved => f.write_str(
                "it never answered: does it run, is its UDP port open, and is this its address?",
            ),
            Self::Silent { second } => write!(
                f,
                "it was given up {}: it no longer proved that it is alive and receives our packets",
                in_second(second)
            ),
            Self::Cancelled { second } => write!(f, "it gave up {}", in_second(second)),
        }
    }
}

/// The exchange with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// The peer.
    pub peer: CapacityPeer,
    /// The bytes sent and received in each second: UDP payload, without headers of IP.
    pub seconds: Vec<PairSecond>,
    /// The reason why it ended early, if it did.
    pub lost: Option<Lost>,
    /// Authentic packets that were replayed, or too late to decide. The seconds do not include them.
    pub repeated_packets: u64,
    /// The operating system's last error for a packet to this peer.
    pub send_error: Option<String>,
}

/// One measurer's part of a capacity test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// Its index in the team.
    pub index: u16,
    /// The peers, in the order of the test's list.
    pub peers: Vec<PeerReport>,
    /// Packets that did not come from a peer, or were not authentic. They had no effect.
    pub stranger_packets: u64,
}

impl CapacityReport {
    /// The peers with which the exchange ended early, with the reasons.
    pub fn lost(&self) -> impl Iterator<Item = (&PeerReport, Lost)> {
        self.peers.iter().filter_map(|peer| Some((peer, peer.lost?)))
    }

    /// The input of [`coordinator::team_capacities`].
    #[must_use]
    pub fn traffic(&self) -> MemberTraffic {
        let pair = |it: &PeerReport| PairTraffic {
            peer: it.peer.index,
            seconds: it.seconds.clone(),
            is_complete: it.lost.is_none(),
        };
        MemberTraffic { index: self.index, pairs: self.peers.iter().map(pair).collect() }
    }
}
