//! MLEFlow (Darir et al., PoPETs 2022): the maximum-likelihood estimate of each capacity from all downloads so far.
//!
//! If a download through relay *i* of capacity *C* got *m*, there were *x* = *C*/*m* − 1 other flows, whose number has the
//! Poisson distribution with mean λ·*w*. The estimate maximises the probability of all rounds. This is the closed form
//! (MLEFlow-CF): with *H* = Σ 1/*m* and *n* rounds, ln *C* = Σ (1/*m*) ln(λ*wm*) / *H* + *n*/(*HC*).

use super::scanner::{AT_ONCE, scan_hours};
use super::{Behavior, CapacityValues, FlowBalancer, Scene, Weighed, normalise, play};
use sim::world::SplitMix64;

/// Rounds before the attack, and of it.
const ROUNDS: u32 = 12;

/// MLEFlow-CF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MleFlow;

/// The history of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Likelihood {
    rounds: f64,
    /// *H*.
    inverse_sum: f64,
    /// Σ (1/*m*) ln(λ*wm*).
    log_sum: f64,
}

impl Likelihood {
    /// Adds the download of a round in which the mean number of flows was `mean_flows`.
    fn add(&mut self, download: f64, mean_flows: f64) {
        self.rounds += 1.0;
        self.inverse_sum += 1.0 / download;
        self.log_sum += (mean_flows * download).ln() / download;
    }

    /// The capacity. With *y* = *n*/(*HC*), *y* + ln *y* = ln(*n*/*H*) − Σ/*H*.
    fn capacity(&self) -> f64 {
        let scale = self.rounds / self.inverse_sum;
        let wanted = scale.ln() - self.log_sum / self.inverse_sum;
        // Newton's method in ln y, whose function is convex and increasing: it converges from any start.
        let mut log_y = wanted.min(0.0);
        for _ in 0..30 {
            log_y -= (log_y.exp() + log_y - wanted) / (log_y.exp() + 1.0);
        }
        scale / log_y.exp()
    }
}

impl FlowBalancer for MleFlow {
    fn name(&self) -> &'static str {
        "mleflow"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none", "fast-when-measured", "part-time"]
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        self.weigh_from(scene, scene.even_weights(), rng)
    }
}

impl MleFlow {
    fn weigh_from(self, scene: &Scene, weights: Vec<f64>, rng: &mut SplitMix64) -> Weighed {
        let mut history = vec![Likelihood::default(); weights.len()];
        let mut server_bit_per_s = 0.0f64;
        let mut rounds = 0;
        let played = play(scene, weights, ROUNDS, |scene, mut weights| {
            if rounds == ROUNDS && scene.behavior != Behavior::HONEST {
                // Honest rounds would count for long: the adversary comes back with new relays.
                scene.adversaries().for_each(|place| history[place] = Likelihood::default());
            }
            rounds += 1;
            for (place, weight) in weights.iter_mut().enumerate() {
                let flows = scene.flows(*weight, rng);
                let download = scene.download(place, flows, rng);
                server_bit_per_s = server_bit_per_s.max(AT_ONCE * download);
                history[place].add(download, scene.mean_flows(*weight));
                *weight = history[place].capacity();
            }
            normalise(&mut weights);
            weights
        });
        // Estimates are as large as the assumed number of flows, which nobody knows in a real network.
        let capacities = CapacityValues::Unavailable;
        let hours = scan_hours(scene.relays.len());
        Weighed { hours, server_bit_per_s, ..Weighed::new(played, capacities) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scaling, Scanner, SceneOptions};
    use super::*;

    #[test]
    fn one_round_without_noise_gives_the_capacity_of_the_mean_number_of_flows() {
        // C/m - 1 = 99 flows were there, and 99.5 would have been most likely to be 99.
        let mut likelihood = Likelihood::default();
        likelihood.add(1e6, 99.0);
        assert!((likelihood.capacity() / 1e8 - 1.0).abs() < 0.01, "{}", likelihood.capacity());
    }

    #[test]
    fn the_closed_form_solves_its_equation() {
        let mut likelihood = Likelihood::default();
        for (download, flows) in [(2e6, 3.0), (5e5, 12.0), (9e5, 0.4)] {
            likelihood.add(download, flows);
        }
        let capacity = likelihood.capacity();
        let right =
            likelihood.log_sum / likelihood.inverse_sum + 3.0 / likelihood.inverse_sum / capacity;
        assert!((capacity.ln() - right).abs() < 1e-9);
    }

    /// Its paper's claim, under its own conditions: flows that take all they get, and equal weights at the beginning.
    #[test]
    fn history_reduces_the_weight_error_of_torflow_p() {
        let errors = |seed| {
            let options = SceneOptions { load: None, ..SceneOptions::with_attack("none", seed) };
            let scene = Scene::draw(&options);
            let even = vec![1.0 / scene.relays.len() as f64; scene.relays.len()];
            let ours = MleFlow.weigh_from(&scene, even, &mut SplitMix64::new(seed));
            let torflow = Scanner(Scaling::Probes).weigh(&scene, &mut SplitMix64::new(seed));
            [ours, torflow].map(|weighed| weighed.weight_error(&scene).expect("weights"))
        };
        for seed in 1..=3 {
            let [ours, torflow] = errors(seed);
            assert!(ours < 0.7 * torflow, "seed {seed}: {ours} and {torflow}");
        }
    }
}
