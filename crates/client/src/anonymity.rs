//! What a way of choosing paths costs in anonymity: entropies of the choice, and how often an adversary has both ends of a path.
//! Pure: the same [`View`], strategy and seed give the same figures.
//!
//! The distribution is that of [`path::draw_path`](crate::path::draw_path) with three hops: exit *e*, then first hop *g*, then middle *m*.
//! A client keeps its first hop for months (guards); seen over all clients, first hops are drawn as here.
//!
//! - Entropies are Shannon's, in bits (Serjantov and Danezis; Díaz et al., both PET 2002): *H(E)*, *H(G)*, *H(M)* of each position, and of whole
//!   paths *H(E) + H(G|E) + H(M|G,E)*. The *degree* is the entropy over the largest that so many relays permit, log₂ *n*.
//! - A path is compromised if both its first and its last relay are the adversary's: then traffic can be matched.
//!
//! *E* and *G* are computed over all pairs. *M* is computed for each pair of a sample of them, drawn with their probabilities, or for all
//! if they are few; the standard error says what the sample leaves open.

mod adversary;

pub use adversary::{Adversary, Weights};

use crate::guards::may_guard;
use crate::path::{Need, NoPath, Rules, candidates};
use crate::strategy::{Position, Strategy};
use crate::view::{RelayInfo, View};
use netdoc::Fingerprint;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use std::collections::BTreeMap;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// The network.
    pub view: &'a View,
    /// How relays are chosen.
    pub strategy: &'a dyn Strategy,
    /// What holds for all paths.
    pub rules: Rules,
    /// What the paths are for.
    pub need: Need,
    /// Pairs of first and last relays for which middles are looked at: all, if there are no more than that, else so many by lot.
    pub pairs: usize,
}

/// The choice at one position.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Relays that are ever chosen.
    pub relays: usize,
    /// Of the choice.
    pub entropy_bits: f64,
    /// How often the most likely relay is chosen, 0 to 1.
    pub largest_share: f64,
}

impl Choice {
    fn of(shares: &BTreeMap<Fingerprint, f64>) -> Self {
        let relays = shares.values().filter(|share| **share > 0.0).count();
        let largest_share = shares.values().copied().fold(0.0, f64::max);
        Self { relays, entropy_bits: entropy_bits(shares.values().copied()), largest_share }
    }

    /// The largest entropy that so many relays permit.
    #[must_use]
    pub fn most_bits(&self) -> f64 {
        (self.relays.max(1) as f64).log2()
    }

    /// The entropy over the largest, 0 to 1; 1 of a single relay.
    #[must_use]
    pub fn degree(&self) -> f64 {
        if self.relays > 1 { self.entropy_bits / self.most_bits() } else { 1.0 }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Anonymity {
    /// First hops.
    pub guard: Choice,
    /// Middles. With a sample, a little below the truth.
    pub middle: Choice,
    /// Last hops.
    pub exit: Choice,
    /// Of whole paths.
    pub path_bits: f64,
    /// The standard error of that, by the sample; 0 if all pairs were looked at.
    pub path_bits_error: f64,
    /// For each adversary, the share of paths with both ends his, 0 to 1.
    pub compromised: Vec<f64>,
    /// The share of exits' choices after which no first hop or no middle is left, 0 to 1: other exits are drawn then.
    pub stuck: f64,
}

/// Shannon's entropy of a distribution, in bits.
#[must_use]
pub fn entropy_bits(shares: impl IntoIterator<Item = f64>) -> f64 {
    let of = |share: f64| if share > 0.0 { -share * share.log2() } else { 0.0 };
    shares.into_iter().map(of).sum()
}

type Shares<'v> = Vec<(&'v RelayInfo, f64)>;

/// Weights as shares of their sum; all alike if all weigh nothing.
fn shares(weighed: Shares<'_>) -> Shares<'_> {
    let (sum, count) = (weighed.iter().map(|it| it.1).sum::<f64>(), weighed.len() as f64);
    let share = |weight: f64| if sum > 0.0 { weight / sum } else { 1.0 / count };
    weighed.into_iter().map(|(relay, weight)| (relay, share(weight))).collect()
}

impl<'a> Study<'a> {
    fn exits(&self) -> Shares<'a> {
        let serves = |relay: &RelayInfo| self.need.is_served_by(relay);
        shares(candidates(self.view, self.strategy, Position::Exit, &[], false, serves))
    }

    fn guards(&self, exit: &RelayInfo) -> Shares<'a> {
        let may_be = |relay: &RelayInfo| self.rules.allow_both(relay, exit);
        let guard = |relay: &RelayInfo| may_guard(relay) && may_be(relay);
        let of = |may_be: &dyn Fn(&RelayInfo) -> bool| {
            candidates(self.view, self.strategy, Position::Guard, &[exit], false, may_be)
        };
        let guards = of(&guard);
        shares(if guards.is_empty() { of(&may_be) } else { guards })
    }

    fn middles(&self, guard: &RelayInfo, exit: &RelayInfo) -> Shares<'a> {
        let allows = |it: &RelayInfo, other| self.rules.allow_both(it, other);
        let may_be = |it: &RelayInfo| allows(it, guard) && allows(it, exit);
        let chosen = [guard, exit];
        shares(candidates(self.view, self.strategy, Position::Middle, &chosen, false, may_be))
    }

    /// Computes it. The generator draws the sample.
    ///
    /// # Errors
    /// [`NoPath`] if there is no path at all.
    pub fn run(&self, adversaries: &[Adversary], rng: &mut impl Rng) -> Result<Anonymity, NoPath> {
        self.strategy.check(self.view)?;
        let exits = self.exits();
        if exits.is_empty() {
            return Err(NoPath::Exit);
        }
        // Exits with which there is a first hop; the others are drawn again.
        let joined: Vec<(&RelayInfo, f64, Shares<'a>)> = exits
            .iter()
            .map(|(exit, share)| (*exit, *share, self.guards(exit)))
            .filter(|(.., guards)| !guards.is_empty())
            .collect();
        let whole: f64 = joined.iter().map(|it| it.1).sum();
        if joined.is_empty() || whole <= 0.0 {
            return Err(NoPath::Guard);
        }
        let (mut exit_shares, mut guard_shares) = (BTreeMap::new(), BTreeMap::new());
        let mut guard_given_exit = 0.0;
        let mut compromised = vec![0.0; adversaries.len()];
        for (exit, share, guards) in &joined {
            let share = share / whole;
            exit_shares.insert(exit.fingerprint, share);
            guard_given_exit += share * entropy_bits(guards.iter().map(|it| it.1));
            for (guard, of) in guards {
                *guard_shares.entry(guard.fingerprint).or_insert(0.0) += share * of;
            }
            for (adversary, sum) in adversaries.iter().zip(&mut compromised) {
                *sum += share * adversary.share_of_ends(exit, guards);
            }
        }
        let looked = self.look_at_middles(&joined, whole, rng)?;
        let exit = Choice::of(&exit_shares);
        Ok(Anonymity {
            guard: Choice::of(&guard_shares),
            middle: Choice::of(&looked.shares),
            exit,
            path_bits: exit.entropy_bits + guard_given_exit + looked.bits,
            path_bits_error: looked.error,
            compromised,
            stuck: 1.0 - whole * (1.0 - looked.stuck),
        })
    }

    fn look_at_middles(
        &self,
        joined: &[(&RelayInfo, f64, Shares<'a>)],
        whole: f64,
        rng: &mut impl Rng,
    ) -> Result<Middles, NoPath> {
        let count: usize = joined.iter().map(|it| it.2.len()).sum();
        let is_exact = count <= self.pairs;
        // Pairs and how much each counts.
        let pairs: Vec<(&RelayInfo, &RelayInfo, f64)> = if is_exact {
            let mut all = Vec::with_capacity(count);
            for (exit, share, guards) in joined {
                all.extend(guards.iter().map(|(guard, of)| (*guard, *exit, share / whole * of)));
            }
            all
        } else {
            let exits =
                WeightedIndex::new(joined.iter().map(|it| it.1)).map_err(|_| NoPath::Exit)?;
            let of = |rng: &mut _| {
                let (exit, _, guards) = &joined[exits.sample(rng)];
                let places = WeightedIndex::new(guards.iter().map(|it| it.1)).ok()?;
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
            let bits = entropy_bits(middles.iter().map(|it| it.1));
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
            let squares: f64 = values.iter().map(|it| (it - found.bits).powi(2)).sum();
            found.error = (squares / (count - 1.0) / count).sqrt();
        }
        Ok(found)
    }
}

/// What was found of middles.
#[derive(Debug, Default)]
struct Middles {
    shares: BTreeMap<Fingerprint, f64>,
    bits: f64,
    error: f64,
    stuck: f64,
}

#[cfg(test)]
mod tests;
