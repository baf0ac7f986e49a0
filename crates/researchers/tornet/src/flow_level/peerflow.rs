//! PeerFlow (Johnson et al., PoPETs 2017(2)): relays report the bytes that they exchanged with each other.
//!
//! The estimate of a relay's traffic by a measuring relay is what both exchanged, divided by the probability of the measuring
//! relay. The authorities take the mean of these estimates, weighted by the measuring relays' weights and without a share of
//! the weight at either end, but no more than the trusted relays' own estimate. Relays also report their capacity, and
//! a weight is at most twice the measured traffic.
//!
//! The paper's text was not to be had, only its abstract, summaries and what FlashFlow's paper says of it (§8). So the share at
//! either end is ours, and there is no Laplace noise, nor a length of the period, which follows from it. The factor of two is what
//! makes 2/τ of the trusted relays' share τ.

use super::{CapacityValues, FlowBalancer, Role, Scene, Weighed, normalise, play};
use sim::world::SplitMix64;

/// The share of the measuring relays' weight that is left out at either end.
const TRIMMED: f64 = 0.25;

/// The largest weight over measured traffic.
const GROWTH: f64 = 2.0;

/// The share of all weight that the measuring relays have: the largest (the authors' branch of tor), and all that are
/// trusted.
const MEASURING: f64 = 0.9;

/// Periods before the attack, and of it.
const PERIODS: u32 = 30;

/// PeerFlow with trusted relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFlow;

impl FlowBalancer for PeerFlow {
    fn name(&self) -> &'static str {
        "peerflow"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none", "false-report", "witnesses", "witnesses-large"]
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let played = play(scene, scene.even_weights(), PERIODS, |scene, weights| {
            period(scene, &weights, rng)
        });
        Weighed::new(played, CapacityValues::Inferred)
    }
}

/// A measuring relay's part in the vote on another relay.
#[derive(Clone, Copy, Debug)]
struct Witness {
    weight: f64,
    is_trusted: bool,
    is_accomplice: bool,
}

/// The weights after a period.
fn period(scene: &Scene, weights: &[f64], rng: &mut SplitMix64) -> Vec<f64> {
    let witnesses = witnesses(scene, weights);
    let mut next: Vec<f64> = (0..weights.len())
        .map(|place| {
            let behavior = scene.behavior_of(place);
            let flows = scene.flows(weights[place], rng);
            let carried = scene.carried(place, flows);
            let measured = if behavior.favours_witnesses {
                let most = behavior.praise_factor * scene.relays[place].capacity;
                favouring(scene, &witnesses, place, weights[place]).min(most)
            } else {
                // Clients choose measuring relays by their weight, so all estimates are right.
                carried
            };
            let claimed = scene.relays[place].capacity * behavior.report_factor;
            let claimed = if behavior.favours_witnesses { f64::INFINITY } else { claimed };
            claimed.min(GROWTH * measured)
        })
        .collect();
    normalise(&mut next);
    next
}

/// The measuring relays.
fn witnesses(scene: &Scene, weights: &[f64]) -> Vec<Witness> {
    let mut places: Vec<usize> = (0..weights.len()).collect();
    places.sort_by(|one, other| weights[*other].total_cmp(&weights[*one]));
    let mut sum = 0.0;
    let is_needed = |place: &usize| {
        let is_needed = sum < MEASURING || scene.relays[*place].role == Role::Trusted;
        sum += weights[*place];
        is_needed
    };
    let places = places.into_iter().filter(is_needed);
    let praises = scene.behavior.praise_factor > 1.0;
    let witness = |place: usize| Witness {
        weight: weights[place],
        is_trusted: scene.relays[place].role == Role::Trusted,
        is_accomplice: scene.relays[place].role == Role::Adversary && praises,
    };
    places.map(witness).collect()
}

/// The largest measured traffic of a relay of the adversary, which carries only what its clients exchange with some of the
/// measuring relays: with all trusted ones, and the largest of the others.
///
/// The relay is a guard, so that it exchanges with measuring relays all that it carries. Its accomplices report any number.
fn favouring(scene: &Scene, witnesses: &[Witness], place: usize, weight: f64) -> f64 {
    let capacity = scene.relays[place].capacity;
    let offered = scene.offered(weight);
    let (trusted, mut others): (Vec<&Witness>, Vec<&Witness>) = witnesses
        .iter()
        .filter(|witness| !witness.is_accomplice)
        .partition(|witness| witness.is_trusted);
    others.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    let accomplices: f64 = witnesses
        .iter()
        .filter(|witness| witness.is_accomplice)
        .map(|witness| witness.weight)
        .sum();
    let of_trusted: f64 = trusted.iter().map(|witness| witness.weight).sum();
    let all = witnesses.iter().map(|witness| witness.weight).sum();
    let mut served = of_trusted;
    let mut best = 0.0f64;
    for witness in std::iter::once(None).chain(others.into_iter().map(Some)) {
        served += witness.map_or(0.0, |witness| witness.weight);
        // Each served witness sees this; it cannot be more than what clients ask for.
        let estimate = if served > 0.0 { (capacity / served).min(offered) } else { 0.0 };
        let vote = trimmed_mean(all, accomplices, served, estimate);
        let bound = if of_trusted > 0.0 { estimate } else { f64::INFINITY };
        best = best.max(vote.min(bound));
    }
    best
}

/// The mean of estimates of measuring relays of the weight `all`, without [`TRIMMED`] of it at either end: those of
/// accomplices have no bound, those of `served` witnesses are `estimate`, and all others are zero.
fn trimmed_mean(all: f64, accomplices: f64, served: f64, estimate: f64) -> f64 {
    let cut = TRIMMED * all;
    if accomplices > cut {
        return f64::INFINITY;
    }
    let counted = (served - (cut - accomplices)).clamp(0.0, all - 2.0 * cut);
    estimate * counted / (all - 2.0 * cut)
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::*;

    fn weighed(options: &SceneOptions) -> (Weighed, Scene) {
        let scene = Scene::draw(options);
        (PeerFlow.weigh(&scene, &mut SplitMix64::new(1)), scene)
    }

    #[test]
    fn the_ends_of_a_vote_do_not_count() {
        assert_eq!(trimmed_mean(1.0, 0.0, 1.0, 3.0), 3.0, "unanimous");
        assert_eq!(trimmed_mean(1.0, 0.0, 0.25, 9.0), 0.0, "a quarter cannot raise it");
        assert_eq!(trimmed_mean(1.0, 0.0, 0.5, 9.0), 4.5, "half of the rest");
        assert_eq!(trimmed_mean(1.0, 0.3, 0.5, 9.0), f64::INFINITY, "more than a quarter lies");
    }

    /// FlashFlow's paper, §8: 4.5 in one period by theorem 1, and 2/τ = 10 in the long run.
    #[test]
    fn a_large_adversary_gains_two_over_the_trusted_share() {
        let saturated =
            SceneOptions { load: None, ..SceneOptions::with_attack("witnesses-large", 1) };
        let (weighed, scene) = weighed(&saturated);
        let (first, last) = (weighed.first_advantage(&scene), weighed.advantage(&scene));
        assert!((1.5..=4.5).contains(&first), "{first}");
        assert!((9.0..10.5).contains(&last), "{last}");
    }

    /// FlashFlow's paper, §8: without trust a large adversary gains without a bound, and a small one does not.
    #[test]
    fn without_trusted_relays_only_a_small_adversary_is_bounded() {
        let untrusted = |attack| SceneOptions {
            trusted_share: 0.0,
            load: None,
            ..SceneOptions::with_attack(attack, 1)
        };
        let (small, scene) = weighed(&untrusted("witnesses"));
        assert!(small.advantage(&scene) < 4.5, "{}", small.advantage(&scene));
        let (large, scene) = weighed(&untrusted("witnesses-large"));
        assert!(large.advantage(&scene) > 12.0, "all weight is 12.5: {}", large.advantage(&scene));
    }

    #[test]
    fn a_claim_counts_only_up_to_twice_the_traffic() {
        let (weighed, scene) = weighed(&SceneOptions::with_attack("false-report", 1));
        let advantage = weighed.advantage(&scene);
        assert!((1.5..2.1).contains(&advantage), "{advantage}");
    }
}
