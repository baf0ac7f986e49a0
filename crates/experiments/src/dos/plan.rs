//! What is to be tried.

use clap::ValueEnum;
use lab::attacks::Kind;
use onion::Rate;

/// Whose relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Side {
    /// A `flashflow relay`.
    Ours,
    /// Stock tor.
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

/// What is the same for all cases.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) attacks: Vec<Kind>,
    pub(super) sides: Vec<Side>,
    /// Of peace before each attack.
    pub(super) peace_s: u32,
    /// Of each attack; some [last longer](Self::seconds_of).
    pub(super) seconds: u32,
    /// What the attacker sends at most.
    pub(super) rate: Rate,
    /// What honest downloads take at most.
    pub(super) demand: Rate,
    /// `MaxMemInQueues` of either relay, in MiB.
    pub(super) memory_mib: u32,
    /// Honest circuits that are open when the attack begins.
    pub(super) standing: usize,
    /// Whether one relay suffers all attacks, whatever its case is called.
    pub(super) is_soak: bool,
}

impl Plan {
    /// The length of this attack, in seconds.
    pub(super) fn seconds_of(&self, kind: Kind) -> u32 {
        self.seconds.max(kind.least_s(self.memory_mib, self.rate))
    }

    /// Each attack on each relay in turn; who is first alternates.
    pub(super) fn cases(&self) -> impl Iterator<Item = (Kind, Side)> + '_ {
        self.attacks.iter().enumerate().flat_map(move |(nth, kind)| {
            let count = self.sides.len();
            (0..count).map(move |place| (*kind, self.sides[(place + nth) % count]))
        })
    }
}
