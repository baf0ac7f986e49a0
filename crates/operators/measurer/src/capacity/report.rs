use super::exchange::Counts;
use coordinator::{MemberTraffic, PairSecond, PairTraffic};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// A member that sends nothing for this number of seconds at the end is silent.
const SILENCE_S: usize = 5;

/// Another measurer of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityPeer {
    /// Its index in the team.
    pub index: u16,
    /// The address of its control plane. Load goes to the same host, and comes from there.
    pub address: SocketAddr,
}

/// The reason why the exchange with a peer is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It did not prove in time that it is present and knows the token: it got no load.
    NeverProved,
    /// More than a quarter of the connections to it were not open at the end.
    Disconnected {
        /// The number that were open.
        open: u32,
        /// The planned number.
        planned: u32,
    },
    /// From this second to the end, and for five seconds at least, nothing arrived from it.
    Silent {
        /// The second.
        second: u32,
    },
}

impl Lost {
    /// Evaluates a peer's counts.
    pub(super) fn judge(counts: &Counts) -> Option<Self> {
        let Counts { planned, open, .. } = *counts;
        if !counts.is_proven {
            return Some(Self::NeverProved);
        }
        if u64::from(open) * 4 < u64::from(planned) * 3 {
            return Some(Self::Disconnected { open, planned });
        }
        let seconds = &counts.seconds;
        let last = seconds.iter().rposition(|second| second.received_bytes > 0);
        let second = last.map_or(0, |last| last + 1);
        let is_silent = seconds.len() - second >= SILENCE_S.min(seconds.len());
        is_silent.then(|| Self::Silent { second: u32::try_from(second).unwrap_or(u32::MAX) })
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverProved => f.write_str(
                "it never answered: does it run, does its firewall admit TCP from this measurer to its `landing_ports`, and is this its \
                 address?",
            ),
            Self::Disconnected { open, planned } => {
                write!(f, "only {open} of {planned} connections to it were open at the end")
            }
            Self::Silent { second } => {
                write!(f, "nothing arrived from it from second {second} to the end")
            }
        }
    }
}

/// The exchange with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// The peer.
    pub peer: CapacityPeer,
    /// The bytes sent and received in each second: payload of TLS.
    pub seconds: Vec<PairSecond>,
    /// The reason why it is not complete.
    pub lost: Option<Lost>,
    /// Why a connection to this peer was lost: the last one.
    pub send_error: Option<String>,
}

/// One measurer's part of a capacity test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// Its index in the team.
    pub index: u16,
    /// The peers, in the order of the test's list.
    pub peers: Vec<PeerReport>,
    /// Connections that did not come from a peer, or had no proof. They had no effect.
    pub stranger_connections: u64,
}

impl CapacityReport {
    /// The peers with which the exchange is not complete, with the reasons.
    pub fn lost(&self) -> impl Iterator<Item = (&PeerReport, Lost)> {
        self.peers.iter().filter_map(|peer| Some((peer, peer.lost?)))
    }

    /// The input of [`coordinator::team_capacities`].
    #[must_use]
    pub fn traffic(&self) -> MemberTraffic {
        let pair = |report: &PeerReport| PairTraffic {
            peer: report.peer.index,
            seconds: report.seconds.clone(),
            is_complete: report.lost.is_none(),
        };
        MemberTraffic { index: self.index, pairs: self.peers.iter().map(pair).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(open: u32, received_bytes: &[u64]) -> Counts {
        let second = |bytes: &u64| PairSecond { sent_bytes: 9, received_bytes: *bytes };
        Counts {
            seconds: received_bytes.iter().map(second).collect(),
            planned: 8,
            open,
            is_proven: true,
            problem: None,
        }
    }

    #[test]
    fn a_peer_is_lost_without_proof_connections_or_bytes() {
        let whole = counts(6, &[1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(Lost::judge(&whole), None);
        let unproven = Counts { is_proven: false, ..whole };
        assert_eq!(Lost::judge(&unproven), Some(Lost::NeverProved));
        let few = counts(5, &[1, 1]);
        assert_eq!(Lost::judge(&few), Some(Lost::Disconnected { open: 5, planned: 8 }));
        let silent = counts(8, &[1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(Lost::judge(&silent), Some(Lost::Silent { second: 3 }));
        assert_eq!(Lost::judge(&counts(8, &[0, 0])), Some(Lost::Silent { second: 0 }));
        assert_eq!(Lost::judge(&counts(8, &[0, 1])), None, "a short test");
    }
}
