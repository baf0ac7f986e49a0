//! Anonymity of a path selection: entropies, and how often an adversary has both ends of a path.
//! Pure: a [`NetDir`], strategy and seed determine the result.
//!
//! The distribution is that of [`path::select_probe_path`](crate::path::select_probe_path) with
//! three hops: exit *e*, then first hop *g*, then middle *m*. A client keeps its first hop for
//! months (guards); over all clients, first hops are distributed as here.
//!
//! - Entropies are Shannon's, in bits (Serjantov and Danezis; Díaz et al., both PET 2002): *H(E)*,
//!   *H(G)*, *H(M)* of each position, and *H(E) + H(G|E) + H(M|G,E)* of whole paths. The *degree*
//!   is the entropy divided by its maximum for the number of relays, log₂ *n*.
//! - A path is compromised if its first and its last relay belong to the adversary, who can then
//!   correlate traffic. A tunnel of several linked paths is, if one of them is.
//!
//! *E* and *G* are computed over all pairs. *M* is computed for a random sample of pairs, or for
//! all if there are few; the standard error describes the uncertainty of the sample.

mod adversary;

pub use adversary::{Adversary, Weights};

use crate::netdir::{NetDir, RelayInfo};
use crate::path::{Need, NoPath, PathRules, candidates};
use crate::strategy::{Position, Strategy};
use netdoc::RsaId;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use std::collections::BTreeMap;

/// A study of a strategy in a network.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The network.
    pub netdir: &'a NetDir,
    /// How relays are selected.
    pub strategy: &'a dyn Strategy,
    /// Restrictions on all paths.
    pub rules: PathRules,
    /// The purpose of the paths.
    pub need: Need,
    /// Circuits that are linked into one tunnel (Conflux): each has its own first hop, drawn independently, and all have one exit.
    pub legs: u8,
    /// Limit on the pairs of first and last relays for which middles are computed; beyond it, a
    /// random sample.
    pub pairs: usize,
}

/// The distribution of the choice at one position.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Relays with a positive probability.
    pub relays: usize,
    /// The entropy in bits.
    pub entropy_bits: f64,
    /// The probability of the most likely relay, 0 to 1.
    pub largest_share: f64,
}

impl Choice {
    fn from_shares(shares: &BTreeMap<RsaId, f64>) -> Self {
        let relays = shares.values().filter(|share| **share > 0.0).count();
        let largest_share = shares.values().copied().fold(0.0, f64::max);
        Self { relays, entropy_bits: entropy_bits(shares.values().copied()), largest_share }
    }

    /// The maximum entropy for this number of relays.
    #[must_use]
    pub fn most_bits(&self) -> f64 {
        (self.relays.max(1) as f64).log2()
    }

    /// The entropy divided by its maximum, 0 to 1; 1 for a single relay.
    #[must_use]
    pub fn degree(&self) -> f64 {
        if self.relays > 1 { self.entropy_bits / self.most_bits() } else { 1.0 }
    }
}

/// The result of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Anonymity {
    /// First hops.
    pub guard: Choice,
    /// Middles. With a sample, slightly underestimated.
    pub middle: Choice,
    /// Last hops.
    pub exit: Choice,
    /// The entropy of whole paths.
    pub path_bits: f64,
    /// Its standard error from sampling; 0 if all pairs were computed.
    pub path_bits_error: f64,
    /// For each adversary, the share of tunnels whose exit it has and the first hop of at least one leg, 0 to 1.
    pub compromised: Vec<f64>,
    /// For each adversary, the share of tunnels of which it has the first hop of at least one leg, 0 to 1.
    pub observed: Vec<f64>,
    /// The share of drawn exits that leave no first hop or no middle, 0 to 1: another exit is drawn
    /// then.
    pub stuck: f64,
}

/// Shannon entropy of a distribution, in bits.
#[must_use]
pub fn entropy_bits(shares: impl IntoIterator<Item = f64>) -> f64 {
    let of = |share: f64| if share > 0.0 { -share * share.log2() } else { 0.0 };
    shares.into_iter().map(of).sum()
}

type Shares<'v> = Vec<(&'v RelayInfo, f64)>;

/// Normalizes weights; uniform if all are zero.
fn shares(weighed: Shares<'_>) -> Shares<'_> {
    let (sum, count) = (weighed.iter().map(|relay| relay.1).sum::<f64>(), weighed.len() as f64);
    let share = |weight: f64| if sum > 0.0 { weight / sum } else { 1.0 / count };
    weighed.into_iter().map(|(relay, weight)| (relay, share(weight))).collect()
}

impl<'a> Study<'a> {
    fn exits(&self) -> Shares<'a> {
        let serves = |relay: &RelayInfo| self.need.is_served_by(relay);
        shares(candidates(self.netdir, self.strategy, Position::Exit, &[], false, serves))
    }

    fn guards(&self, exit: &RelayInfo) -> Shares<'a> {
        let may_be = |relay: &RelayInfo| self.rules.allow_both(relay, exit);
        let guard = |relay: &RelayInfo| relay.may_be_guard() && may_be(relay);
        let of = |may_be: &dyn Fn(&RelayInfo) -> bool| {
            candidates(self.netdir, self.strategy, Position::Guard, &[exit], false, may_be)
        };
        let guards = of(&guard);
        shares(if guards.is_empty() { of(&may_be) } else { guards })
    }

    fn middles(&self, guard: &RelayInfo, exit: &RelayInfo) -> Shares<'a> {
        let allows = |relay: &RelayInfo, other| self.rules.allow_both(relay, other);
        let may_be = |relay: &RelayInfo| allows(relay, guard) && allows(relay, exit);
        let chosen = [guard, exit];
        shares(candidates(self.netdir, self.strategy, Position::Middle, &chosen, false, may_be))
    }

    /// Computes the result. The generator draws the sample.
    ///
    /// # Errors
    /// [`NoPath`] if no path exists.
    pub fn run(&self, adversaries: &[Adversary], rng: &mut impl Rng) -> Result<Anonymity, NoPath> {
        self.strategy.check(self.netdir)?;
        let exits = self.exits();
        if exits.is_empty() {
            return Err(NoPath::Exit);
        }
        // Exits with a possible first hop; the others are drawn again.
        let joined: Vec<(&RelayInfo, f64, Shares<'a>)> = exits
            .iter()
            .map(|(exit, share)| (*exit, *share, self.guards(exit)))
            .filter(|(.., guards)| !guards.is_empty())
            .collect();
        let whole: f64 = joined.iter().map(|exit| exit.1).sum();
        if joined.is_empty() || whole <= 0.0 {
            return Err(NoPath::Guard);
        }
        let (mut exit_shares, mut guard_shares) = (BTreeMap::new(), BTreeMap::new());
        let mut guard_given_exit = 0.0;
        let mut compromised = vec![0.0; adversaries.len()];
        let mut observed = compromised.clone();
        for (exit, share, guards) in &joined {
            let share = share / whole;
            exit_shares.insert(exit.fingerprint, share);
            guard_given_exit += share * entropy_bits(guards.iter().map(|guard| guard.1));
            for (guard, of) in guards {
                *guard_shares.entry(guard.fingerprint).or_insert(0.0) += share * of;
            }
            for (place, adversary) in adversaries.iter().enumerate() {
                let guard_share = adversary.share_of(guards);
                let some = match self.legs {
                    // Without rounding errors.
                    1 => guard_share,
                    legs => 1.0 - (1.0 - guard_share).max(0.0).powi(legs.into()),
                };
                observed[place] += share * some;
                compromised[place] += if adversary.has(exit) { share * some } else { 0.0 };
            }
        }
        let looked = self.look_at_middles(&joined, whole, rng)?;
        let exit = Choice::from_shares(&exit_shares);
        Ok(Anonymity {
            guard: Choice::from_shares(&guard_shares),
            middle: Choice::from_shares(&looked.shares),
            exit,
            path_bits: exit.entropy_bits + guard_given_exit + looked.bits,
            path_bits_error: looked.error,
            compromised,
            observed,
            stuck: 1.0 - whole * (1.0 - looked.stuck),
        })
    }

    fn look_at_middles(
        &self,
        joined: &[(&RelayInfo, f64, Shares<'a>)],
        whole: f64,
        rng: &mut impl Rng,
    ) -> Result<Middles, NoPath> {
        let count: usize = joined.iter().map(|exit| exit.2.len()).sum();
        let is_exact = count <= self.pairs;
        // Pairs with their probabilities.
        let pairs: Vec<(&RelayInfo, &RelayInfo, f64)> = if is_exact {
            let mut all = Vec::with_capacity(count);
            for (exit, share, guards) in joined {
                all.extend(guards.iter().map(|(guard, of)| (*guard, *exit, share / whole * of)));
            }
            all
        } else {
            let exits =
                WeightedIndex::new(joined.iter().map(|exit| exit.1)).map_err(|_| NoPath::Exit)?;
            let of = |rng: &mut _| {
                let (exit, _, guards) = &joined[exits.sample(rng)];
                let places = WeightedIndex::new(guards.iter().map(|guard| guard.1)).ok()?;
                let (guard, _) = guards[places.sample(rng)];
                Some((guard, *exit, 1.0 / self.pairs as f64))
            };
            (0..self.pairs).filter_map(|_| of(rng)).collect()
        };
        let (mut found, mut values) = (Middles::default(), Vec::new());
        let mut has_some = 0.0;
        for (guard, exit, counts) in pairs {
            let middles = self.middles(guard, exit);
            if middles.is_empty() {
                found.stuck += counts;
                continue;
            }
            has_some += counts;
            let bits = entropy_bits(middles.iter().map(|middle| middle.1));
            found.bits += counts * bits;
            values.push(bits);
            for (middle, share) in middles {
                *found.shares.entry(middle.fingerprint).or_insert(0.0) += counts * share;
            }
        }
        if has_some <= 0.0 {
            return Err(NoPath::Middle);
        }
        found.bits /= has_some;
        found.shares.values_mut().for_each(|share| *share /= has_some);
        if !is_exact && values.len() > 1 {
            let count = values.len() as f64;
            let squares: f64 = values.iter().map(|value| (value - found.bits).powi(2)).sum();
            found.error = (squares / (count - 1.0) / count).sqrt();
        }
        Ok(found)
    }
}

/// The result for middles.
#[derive(Debug, Default)]
struct Middles {
    shares: BTreeMap<RsaId, f64>,
    bits: f64,
    error: f64,
    stuck: f64,
}

#[cfg(test)]
mod tests;
