//! The attacks to run and their parameters.

use clap::ValueEnum;
use lab::attacks::Kind;
use onion::Rate;
use serde::{Serialize, Serializer};
use std::fmt;

/// The software of the attacked relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// `flashflow relay`.
    Ours,
    /// C tor.
    Tor,
}

impl Side {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Tor => "tor",
        }
    }
}

/// An attack on a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    #[serde(rename = "attack", serialize_with = "word")]
    pub(super) kind: Kind,
    #[serde(rename = "relay")]
    pub(super) side: Side,
}

fn word<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&kind.word())
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.kind.word(), self.side.word())
    }
}

/// The parameters of all cases.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) attacks: Vec<Kind>,
    pub(super) sides: Vec<Side>,
    /// The time before each attack, in seconds.
    pub(super) undisturbed_s: u32,
    /// The duration of each attack; some [last longer](Self::seconds_of).
    pub(super) seconds: u32,
    /// The maximum rate of the attacker.
    pub(super) rate: Rate,
    /// The maximum rate of honest downloads.
    pub(super) demand: Rate,
    /// `MaxMemInQueues` of each relay, in MiB.
    pub(super) memory_mib: u32,
    /// The number of honest circuits that are open when the attack begins.
    pub(super) open_circuits: usize,
    /// Whether all attacks target the same relay.
    pub(super) is_soak: bool,
}

impl Plan {
    /// The duration of this attack, in seconds.
    pub(super) fn seconds_of(&self, kind: Kind) -> u32 {
        self.seconds.max(kind.min_duration_s(self.memory_mib, self.rate))
    }

    /// Each attack on each relay; the order of the relays alternates.
    pub(super) fn cases(&self) -> impl Iterator<Item = Cell> + '_ {
        self.attacks.iter().enumerate().flat_map(move |(nth, kind)| {
            let count = self.sides.len();
            let side = move |place| self.sides[(place + nth) % count];
            (0..count).map(move |place| Cell { kind: *kind, side: side(place) })
        })
    }
}
