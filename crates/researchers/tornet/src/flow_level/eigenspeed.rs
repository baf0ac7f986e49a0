//! EigenSpeed (Snader and Borisov, IPTPS 2009): weights are the principal eigenvector of what relays observed of each other.
//!
//! Observations of a pair count as the smaller of both reports; rows are scaled to a sum of one; the iteration begins with
//! the trusted relays. Then a relay whose row differs too much from the result is removed as a liar, and all begins again.
//! Parameters are those of the authors' program. The rule by which its paper removes relays whose weight *changes* too much
//! during the iteration is not in that program, and is left out.

use super::median::PUBLISHED_AFTER_HOURS;
use super::peer_speeds::PeerSpeeds;
use super::{CapacityValues, FlowBalancer, Played, Role, Scene, Weighed, normalise};
use sim::world::SplitMix64;

/// The iteration ends when the sum of squared changes is smaller.
const CHANGE_MIN: f64 = 1e-10;

/// A limit of iterations, which those that converge do not reach.
const ITERATIONS_MAX: usize = 2000;

/// A relay is a liar if the fourth powers of the differences between its row and the result have at least this sum.
const LIAR: f64 = 1e-5;

/// The shares of their reports that lying relays give each other, of which the adversary takes the best: it knows all
/// reports, and computes as the authorities do.
const PRAISES: [f64; 14] =
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999];

/// EigenSpeed with trusted relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EigenSpeed;

/// The result of the iteration.
struct Result {
    weights: Vec<f64>,
    is_liar: Vec<bool>,
}

impl FlowBalancer for EigenSpeed {
    fn name(&self) -> &'static str {
        "eigenspeed"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none", "mutual-praise", "mutual-praise-many", "framing", "sybils"]
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let trusted: Vec<usize> = scene.places(Role::Trusted).collect();
        let adversaries: Vec<usize> = scene.adversaries().collect();
        let mut speeds =
            PeerSpeeds::observe(scene, rng, |speeds| evaluate(speeds.clone(), &trusted).weights);
        if !scene.behavior.carries_traffic {
            speeds.separate(&adversaries);
        }
        let mut best = evaluate(speeds.clone(), &trusted);
        if scene.behavior.praise_factor > 1.0 && scene.behavior.carries_traffic {
            let gain = |result: &Result| match scene.behavior.frames {
                true => honest_liars(scene, result) as f64,
                false => adversaries.iter().map(|place| result.weights[*place]).sum(),
            };
            for share in PRAISES {
                let result = evaluate(praising(&speeds, &adversaries, share), &trusted);
                if gain(&result) > gain(&best) {
                    best = result;
                }
            }
        }
        let honest_removed = honest_liars(scene, &best);
        let hours =
            best.weights.iter().map(|weight| (*weight > 0.0).then_some(PUBLISHED_AFTER_HOURS));
        let hours = hours.collect();
        let played = Played::once(best.weights);
        Weighed { hours, honest_removed, ..Weighed::new(played, CapacityValues::Unavailable) }
    }
}

/// The number of honest relays that are removed as liars.
fn honest_liars(scene: &Scene, result: &Result) -> usize {
    let relays = scene.relays.iter().zip(&result.is_liar);
    relays.filter(|(relay, is_liar)| **is_liar && relay.role != Role::Adversary).count()
}

/// The observations, where accomplices give each other this share of their reports.
fn praising(speeds: &PeerSpeeds, adversaries: &[usize], share: f64) -> PeerSpeeds {
    let mut speeds = speeds.clone();
    for place in adversaries {
        adversaries.iter().for_each(|other| speeds.set(*place, *other, 0.0));
    }
    let of_others: Vec<f64> =
        adversaries.iter().map(|place| speeds.row(*place).iter().sum()).collect();
    let others = adversaries.len().saturating_sub(1).max(1) as f64;
    for (one, of_one) in adversaries.iter().zip(&of_others) {
        for (other, of_other) in adversaries.iter().zip(&of_others) {
            if one != other {
                let rate = share / (1.0 - share) * (of_one * of_other).sqrt() / others;
                speeds.set(*one, *other, rate);
            }
        }
    }
    speeds
}

/// The weights, and the relays that are removed as liars.
fn evaluate(mut speeds: PeerSpeeds, trusted: &[usize]) -> Result {
    let relays = speeds.relays();
    for one in 0..relays {
        speeds.set(one, one, 0.0);
        for other in 0..one {
            let smaller = speeds.get(one, other).min(speeds.get(other, one));
            speeds.set(one, other, smaller);
            speeds.set(other, one, smaller);
        }
    }
    // Relays that nobody else has observed are not in the component of the trusted ones.
    let is_evaluated = reachable(&speeds, trusted);
    let mut is_liar = vec![false; relays];
    let mut weights = loop {
        for place in 0..relays {
            let row = speeds.row_mut(place);
            let sum: f64 = row.iter().sum();
            if sum > 0.0 {
                row.iter_mut().for_each(|rate| *rate /= sum);
            }
        }
        let weights = iterate(&speeds, trusted);
        let lies = |place: usize| -> f64 {
            let differences = speeds.row(place).iter().zip(&weights);
            let sum: f64 = differences.map(|(rate, weight)| (rate - weight).powi(4)).sum();
            sum - (speeds.get(place, place) - weights[place]).powi(4)
        };
        let found: Vec<usize> = (0..relays)
            .filter(|place| is_evaluated[*place] && !is_liar[*place] && lies(*place) >= LIAR)
            .collect();
        if found.is_empty() {
            break weights;
        }
        for liar in found {
            is_liar[liar] = true;
            for other in 0..relays {
                speeds.set(liar, other, 0.0);
                speeds.set(other, liar, 0.0);
            }
        }
    };
    normalise(&mut weights);
    for (weight, is_evaluated) in weights.iter_mut().zip(&is_evaluated) {
        if !is_evaluated {
            *weight = 1.0 / relays as f64;
        }
    }
    normalise(&mut weights);
    Result { weights, is_liar }
}

/// Repeated multiplication of a vector with the matrix, from the trusted relays on.
fn iterate(speeds: &PeerSpeeds, trusted: &[usize]) -> Vec<f64> {
    let mut weights = vec![0.0; speeds.relays()];
    trusted.iter().for_each(|place| weights[*place] = 1.0 / trusted.len() as f64);
    for _ in 0..ITERATIONS_MAX {
        let mut next = vec![0.0; weights.len()];
        for (place, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            next.iter_mut().zip(speeds.row(place)).for_each(|(sum, rate)| *sum += weight * rate);
        }
        let change: f64 = weights.iter().zip(&next).map(|(one, other)| (one - other).powi(2)).sum();
        weights = next;
        if change < CHANGE_MIN {
            break;
        }
    }
    weights
}

/// Whether observations connect each relay with a trusted one.
fn reachable(speeds: &PeerSpeeds, trusted: &[usize]) -> Vec<bool> {
    let mut is_reached = vec![false; speeds.relays()];
    let mut next = trusted.to_vec();
    while let Some(place) = next.pop() {
        if !std::mem::replace(&mut is_reached[place], true) {
            let observed = speeds.row(place).iter().enumerate().filter(|(_, rate)| **rate > 0.0);
            next.extend(observed.map(|(other, _)| other).filter(|other| !is_reached[*other]));
        }
    }
    is_reached
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::*;

    fn weighed(attack: &str, relays: usize) -> (Weighed, Scene) {
        let scene = Scene::draw(&SceneOptions { relays, ..SceneOptions::with_attack(attack, 1) });
        (EigenSpeed.weigh(&scene, &mut SplitMix64::new(1)), scene)
    }

    /// A symmetric matrix has an eigenvector in proportion to the sums of its rows.
    #[test]
    fn weights_are_the_sums_of_rows_of_a_symmetric_matrix() {
        let scene =
            Scene::draw(&SceneOptions { relays: 60, ..SceneOptions::with_attack("none", 2) });
        let mut rng = SplitMix64::new(2);
        let speeds =
            PeerSpeeds::observe(&scene, &mut rng, |speeds| vec![1.0 / 60.0; speeds.relays()]);
        let mut sums: Vec<f64> = (0..60).map(|place| speeds.row(place).iter().sum()).collect();
        normalise(&mut sums);
        let trusted: Vec<usize> = (0..12).collect();
        let weights = iterate(&scaled(speeds), &trusted);
        assert!(sums.iter().zip(&weights).all(|(sum, weight)| (sum - weight).abs() < 1e-4));
    }

    fn scaled(mut speeds: PeerSpeeds) -> PeerSpeeds {
        for place in 0..speeds.relays() {
            let sum: f64 = speeds.row(place).iter().sum();
            speeds.row_mut(place).iter_mut().for_each(|rate| *rate /= sum);
        }
        speeds
    }

    /// PeerFlow's authors: relays that nobody evaluates have 1/n each.
    #[test]
    fn relays_that_nobody_has_observed_get_the_mean() {
        let (weighed, scene) = weighed("sybils", 150);
        // Evaluated relays share one, and each of the others adds 1/n.
        let share = 60.0 / (147.0 + 60.0);
        let expected = share / (1.0 + share) / 0.02;
        let advantage = weighed.advantage(&scene);
        assert!((advantage / expected - 1.0).abs() < 0.02, "{advantage} instead of {expected}");
    }

    /// PeerFlow's authors: 2 % of the relays have up to 20 % of the honest ones removed.
    #[test]
    fn a_small_adversary_has_honest_relays_removed_as_liars() {
        let (weighed, scene) = weighed("framing", 1000);
        let share = weighed.honest_removed as f64 / scene.relays.len() as f64;
        assert!(share > 0.1, "{share}");
    }

    #[test]
    fn praise_that_is_concentrated_is_found_and_a_larger_group_escapes() {
        let (few, scene) = weighed("mutual-praise", 150);
        assert!(few.advantage(&scene) < 2.0, "three relays: {}", few.advantage(&scene));
        let (many, scene) = weighed("mutual-praise-many", 1000);
        let advantage = many.advantage(&scene);
        assert!(advantage > 7.4, "40 relays: {advantage}");
    }
}
