//! The steps of starting a network.

use std::fmt;
use std::time::Duration;

/// A step of starting a network. Its `Display` is a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The authorities' keys are being created.
    MakingKeys,
    /// The tor processes are being started.
    Starting {
        /// The number of processes.
        nodes: usize,
    },
    /// All processes run; the authorities have to agree on a consensus with all nodes.
    WaitingForConsensus {
        /// The number of nodes that the newest consensus lists as running.
        running: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// There is a consensus, which the relays have to fetch, with all descriptors.
    WaitingForRelays {
        /// The number of nodes that are ready.
        ready: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// Another program took a port; the start is repeated with others.
    Retrying {
        /// The node whose port was taken.
        nickname: String,
    },
    /// The network is up.
    Ready {
        /// How long it took.
        after: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakingKeys => write!(f, "making the authorities' keys"),
            Self::Starting { nodes } => write!(f, "starting {nodes} tor processes"),
            Self::WaitingForConsensus { running, nodes } => {
                write!(f, "waiting for a consensus with all nodes ({running} of {nodes})")
            }
            Self::WaitingForRelays { ready, nodes } => {
                write!(f, "waiting for all nodes to have the consensus ({ready} of {nodes})")
            }
            Self::Retrying { nickname } => {
                write!(f, "a port of `{nickname}` was taken by another program; starting again")
            }
            Self::Ready { after } => write!(f, "ready after {:.1} s", after.as_secs_f64()),
        }
    }
}
