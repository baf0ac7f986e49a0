use crate::countries::{Countries, Country};
use crate::view::{RelayInfo, View};
use netdoc::Fingerprint;
use rand::Rng;
use rand::seq::SliceRandom;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Somebody who runs, or watches, some of the relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adversary {
    /// In words.
    pub name: String,
    relays: BTreeSet<Fingerprint>,
}

/// Which relays an adversary with a share of the network's weight has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Any, by lot.
    ByLot,
    /// The largest: as few relays as possible.
    Largest,
}

impl Adversary {
    /// Who has these.
    pub fn of(name: impl Into<String>, relays: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self { name: name.into(), relays: relays.into_iter().collect() }
    }

    /// Who has this share of the relays, 0 to 1, by lot.
    pub fn with_relays(view: &View, share: f64, rng: &mut impl Rng) -> Self {
        let mut all: Vec<Fingerprint> = view.relays().iter().map(|it| it.fingerprint).collect();
        all.shuffle(rng);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a count"
        )]
        let count = (all.len() as f64 * share.clamp(0.0, 1.0)).round() as usize;
        Self::of(format!("{:.3} of the relays", share), all.into_iter().take(count))
    }

    /// An adversary whose relays have up to this share of the consensus' weight, 0 to 1: random relays, or the largest ones. If all relays
    /// weigh 0, each counts the same, as tor chooses among them.
    pub fn with_weight(view: &View, share: f64, which: Weights, rng: &mut impl Rng) -> Self {
        let mut all: Vec<&RelayInfo> = view.relays().iter().collect();
        match which {
            Weights::ByLot => all.shuffle(rng),
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
            Weights::ByLot => "of the weight, by lot",
            Weights::Largest => "of the weight, the largest relays",
        };
        Self::of(format!("{share:.3} {words}"), relays)
    }

    /// Who watches all relays of a country.
    #[must_use]
    pub fn in_country(view: &View, country: Country, table: &Countries) -> Self {
        let is_there = |relay: &&RelayInfo| table.find(IpAddr::V4(relay.address)) == Some(country);
        let relays = view.relays().iter().filter(is_there).map(|relay| relay.fingerprint);
        Self::of(format!("all relays in {country}"), relays)
    }

    /// How many relays he has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.relays.len()
    }

    /// Whether he has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// With this exit, the share of paths that have both ends his.
    pub(super) fn share_of_ends(&self, exit: &RelayInfo, guards: &[(&RelayInfo, f64)]) -> f64 {
        if !self.relays.contains(&exit.fingerprint) {
            return 0.0;
        }
        let his = guards.iter().filter(|(guard, _)| self.relays.contains(&guard.fingerprint));
        his.map(|(_, share)| share).sum()
    }
}
