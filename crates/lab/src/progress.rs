//! What bringing up a network is waiting for.

use std::fmt;
use std::time::Duration;

/// A step of bringing up a network. Its `Display` is a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The authorities' keys are being made.
    MakingKeys,
    /// The tor processes are being started.
    Starting {
        /// How many.
        nodes: usize,
    },
    /// All processes run; the authorities have yet to agree on a consensus with everybody in it.
    WaitingForConsensus {
        /// How many nodes the newest consensus lists as running.
        running: usize,
        /// How many there are.
        nodes: usize,
    },
    /// There is a consensus, which the relays have yet to fetch, with everybody's descriptors.
    WaitingForRelays {
        /// How many nodes are ready.
        ready: usize,
        /// How many there are.
        nodes: usize,
    },
    /// Another program took one of our ports; all starts again with others.
    Retrying {
        /// Whose port was taken.
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
