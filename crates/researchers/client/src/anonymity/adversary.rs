use crate::countries::{Countries, Country};
use crate::netdir::{NetDir, RelayInfo};
use netdoc::RsaId;
use rand::Rng;
use rand::seq::SliceRandom;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An adversary that runs, or observes, some of the relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adversary {
    /// A description.
    pub name: String,
    relays: BTreeSet<RsaId>,
}

/// Which relays an adversary with a share of the network's weight has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Random ones.
    Random,
    /// The largest: as few relays as possible.
    Largest,
}

impl Adversary {
    /// An adversary with these relays.
    pub fn new(name: impl Into<String>, relays: impl IntoIterator<Item = RsaId>) -> Self {
        Self { name: name.into(), relays: relays.into_iter().collect() }
    }

    /// An adversary with this random share of the relays, 0 to 1.
    pub fn with_relays(netdir: &NetDir, share: f64, rng: &mut impl Rng) -> Self {
        let mut all: Vec<RsaId> = netdir.relays().iter().map(|relay| relay.fingerprint).collect();
        all.shuffle(rng);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a count"
        )]
        let count = (all.len() as f64 * share.clamp(0.0, 1.0)).round() as usize;
        Self::new(format!("{:.3} of the relays", share), all.into_iter().take(count))
    }

    /// An adversary whose relays have up to this share of the consensus weight, 0 to 1. If all
    /// weights are zero, relays count equally, as in tor's path selection.
    pub fn with_weight(netdir: &NetDir, share: f64, which: Weights, rng: &mut impl Rng) -> Self {
        let mut all: Vec<&RelayInfo> = netdir.relays().iter().collect();
        match which {
            Weights::Random => all.shuffle(rng),
            Weights::Largest => all.sort_by_key(|relay| Reverse(relay.weight_kb_s)),
        }
        let is_weighted = all.iter().any(|relay| relay.weight_kb_s > 0);
        let weight =
            |relay: &RelayInfo| if is_weighted { f64::from(relay.weight_kb_s) } else { 1.0 };
        let sum: f64 = all.iter().map(|relay| weight(relay)).sum();
        let (mut has, mut relays) = (0.0, Vec::new());
        for relay in all {
            let weight = weight(relay);
            if has + weight <= sum * share {
                has += weight;
                relays.push(relay.fingerprint);
            } else if which == Weights::Largest {
                break;
            }
        }
        let words = match which {
            Weights::Random => "of the weight, random relays",
            Weights::Largest => "of the weight, the largest relays",
        };
        Self::new(format!("{share:.3} {words}"), relays)
    }

    /// An adversary that observes all relays of a country.
    #[must_use]
    pub fn in_country(netdir: &NetDir, country: Country, table: &Countries) -> Self {
        let is_there = |relay: &&RelayInfo| table.find(IpAddr::V4(relay.address)) == Some(country);
        let relays = netdir.relays().iter().filter(is_there).map(|relay| relay.fingerprint);
        Self::new(format!("all relays in {country}"), relays)
    }

    /// The number of its relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.relays.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// Whether it has this relay.
    pub(super) fn has(&self, relay: &RelayInfo) -> bool {
        self.relays.contains(&relay.fingerprint)
    }

    /// Its share of these guards.
    pub(super) fn share_of(&self, guards: &[(&RelayInfo, f64)]) -> f64 {
        let his = guards.iter().filter(|(guard, _)| self.has(guard));
        his.map(|(_, share)| share).sum()
    }
}
