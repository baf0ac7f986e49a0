//! Load balancers at flow level, under attack: each draws its observations from a model of flows, and computes weights by its
//! own rules.
//!
//! An adversary's gain depends on the rules of a balancer and on what its observations show, not on single cells. So a run
//! takes milliseconds instead of hours, and every balancer can be tried under every attack with many seeds. The
//! [`FlashFlow`] of this module is the coordinator's own [`Period`](coordinator::period::Period), whose measurers and relays
//! are models. Load balancers in a network of cells are in [`balance`](crate::balance).
//!
//! A new balancer is a [`FlowBalancer`]; it consults the fields of [`Behavior`] that concern its observations. A new attack
//! is an entry of [`ATTACKS`].

mod behavior;
mod capacities;
mod clients;
mod draws;
mod dynamic;
mod eigenspeed;
mod flashflow;
mod median;
mod mleflow;
mod peer_speeds;
mod peerflow;
mod scanner;
mod scene;

pub use behavior::{ATTACKS, Attack, Behavior};
pub use capacities::TrueCapacities;
pub use clients::Downloads;
pub use dynamic::FlashFlowDynamic;
pub use eigenspeed::EigenSpeed;
pub use flashflow::FlashFlow;
pub use median::PeerMedian;
pub use mleflow::MleFlow;
pub use peerflow::PeerFlow;
pub use scanner::{Scaling, Scanner};
pub use scene::{FlowRelay, Role, Scene, SceneOptions};

use crate::errors::network_weight_error;
use sim::world::SplitMix64;

/// Assigns weights to relays, from observations that a model of flows provides.
pub trait FlowBalancer {
    /// Its name, used in file names.
    fn name(&self) -> &'static str;

    /// The names of the [`ATTACKS`] that can have an effect on it, the first of which is none.
    fn attacks(&self) -> &'static [&'static str];

    /// Whether its weights depend on what clients want.
    fn depends_on_load(&self) -> bool {
        true
    }

    /// Measures the relays of a scene. The adversary is honest until its weights have settled, and then attacks.
    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed;
}

/// Whether a balancer provides capacities besides weights (table 2 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityValues {
    /// It measures them.
    Provided,
    /// Lower bounds follow from its observations.
    Inferred,
    /// It has only relative weights.
    Unavailable,
}

impl CapacityValues {
    /// The word in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provided => "provided",
            Self::Inferred => "inferred",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The result of a balancer. All lists are in the order of the scene's relays.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The weights after the first round or period of the attack.
    pub first_weights: Vec<f64>,
    /// The weights under the attack: the mean of its later half, since some balancers never settle.
    pub weights: Vec<f64>,
    /// The weights after the last round.
    pub last_weights: Vec<f64>,
    /// Whether it provides capacities.
    pub capacities: CapacityValues,
    /// When each relay has its first weight, in hours after the start; `None` for a relay that gets none. Empty if the
    /// model has no time for this balancer.
    pub hours: Vec<Option<f64>>,
    /// The maximum rate of its own servers.
    pub server_bit_per_s: f64,
    /// Honest relays that were removed from the network as liars.
    pub honest_removed: usize,
}

impl Weighed {
    /// These weights, of a balancer without servers.
    fn new(played: Played, capacities: CapacityValues) -> Self {
        let Played { first_weights, weights, last_weights } = played;
        Self {
            first_weights,
            weights,
            last_weights,
            capacities,
            hours: Vec::new(),
            server_bit_per_s: 0.0,
            honest_removed: 0,
        }
    }

    /// The adversary's share of all weight over its share of all capacity.
    #[must_use]
    pub fn advantage(&self, scene: &Scene) -> f64 {
        advantage(&self.weights, scene)
    }

    /// The adversary's share of all weight over its share of all capacity, after the first round of the attack.
    #[must_use]
    pub fn first_advantage(&self, scene: &Scene) -> f64 {
        advantage(&self.first_weights, scene)
    }

    /// The network weight error (paper, equation 6) after the last round.
    #[must_use]
    pub fn weight_error(&self, scene: &Scene) -> Option<f64> {
        network_weight_error(&self.last_weights, &scene.capacities())
    }

    /// The hours after which this share of the relays has a weight, from 0 to 1. `None` if fewer ever get one.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of relays"
    )]
    pub fn hours_until(&self, share: f64) -> Option<f64> {
        let mut hours: Vec<f64> = self.hours.iter().flatten().copied().collect();
        hours.sort_by(f64::total_cmp);
        let wanted = (share * self.hours.len() as f64).ceil() as usize;
        hours.get(wanted.checked_sub(1)?).copied()
    }
}

fn advantage(weights: &[f64], scene: &Scene) -> f64 {
    let share = |values: &[f64]| {
        let all: f64 = values.iter().sum();
        scene.adversaries().map(|place| values[place]).sum::<f64>() / all
    };
    share(weights) / share(&scene.capacities())
}

/// The weights under an attack.
struct Played {
    first_weights: Vec<f64>,
    weights: Vec<f64>,
    last_weights: Vec<f64>,
}

impl Played {
    /// Weights that are computed once.
    fn once(weights: Vec<f64>) -> Self {
        Self { first_weights: weights.clone(), weights: weights.clone(), last_weights: weights }
    }
}

/// Plays rounds under an attack, after the same number of rounds before it. A round takes the shares of all weight, and returns
/// new ones.
fn play(
    scene: &Scene,
    mut weights: Vec<f64>,
    rounds: u32,
    mut round: impl FnMut(&Scene, Vec<f64>) -> Vec<f64>,
) -> Played {
    let before = scene.before_attack();
    for _ in 0..rounds {
        weights = round(&before, weights);
    }
    let (mut first_weights, mut sum) = (Vec::new(), vec![0.0; weights.len()]);
    for number in 0..rounds {
        weights = round(scene, weights);
        if number == 0 {
            first_weights.clone_from(&weights);
        }
        if number >= rounds / 2 {
            sum.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += weight);
        }
    }
    normalise(&mut sum);
    Played { first_weights, weights: sum, last_weights: weights }
}

/// Scales values to a sum of one; all equal if there are none.
fn normalise(values: &mut [f64]) {
    let sum: f64 = values.iter().sum();
    let even = 1.0 / values.len().max(1) as f64;
    values.iter_mut().for_each(|value| *value = if sum > 0.0 { *value / sum } else { even });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advantage_is_a_share_of_weight_over_a_share_of_capacity() {
        let scene =
            Scene::draw(&SceneOptions { relays: 100, ..SceneOptions::with_attack("none", 1) });
        let even = advantage(&scene.capacities(), &scene);
        assert!((even - 1.0).abs() < 1e-9, "{even}");
        let mut weights = scene.capacities();
        for place in scene.adversaries() {
            weights[place] *= 2.0;
        }
        // Twice 2 % of 102 %.
        assert!((advantage(&weights, &scene) - 2.0 / 1.02).abs() < 1e-9);
    }

    #[test]
    fn hours_until_a_share_count_relays_without_a_weight() {
        let weighed = Weighed {
            first_weights: vec![],
            weights: vec![],
            last_weights: vec![],
            capacities: CapacityValues::Provided,
            hours: vec![Some(3.0), Some(1.0), None, Some(2.0)],
            server_bit_per_s: 0.0,
            honest_removed: 0,
        };
        assert_eq!(weighed.hours_until(0.5), Some(2.0));
        assert_eq!((weighed.hours_until(0.75), weighed.hours_until(1.0)), (Some(3.0), None));
    }
}
