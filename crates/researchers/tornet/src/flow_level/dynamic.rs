//! FlashFlow with weights that are reduced by what relays report about their use (FlashFlow's paper, §9).
//!
//! The paper only proposes it, without a formula. Here a relay whose available share is below the mean gets its measured
//! capacity times that share over the mean, at least half. The bound keeps reports of an idle adversary from being worth more
//! than twice what FlashFlow permits.

use super::flashflow::{Campaign, measure};
use super::{CapacityValues, FlowBalancer, Scene, Weighed, normalise, play};
use sim::world::SplitMix64;

/// The largest reduction.
const REDUCED_MIN: f64 = 0.5;

/// Reports of the relays' use before the attack, and under it.
const ROUNDS: u32 = 10;

/// FlashFlow's capacities as upper bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashFlowDynamic;

impl FlowBalancer for FlashFlowDynamic {
    fn name(&self) -> &'static str {
        "flashflow-dynamic"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none", "client-claims", "fast-when-measured", "idle-claims", "idle-client-claims"]
    }

    fn weigh(&self, scene: &Scene, rng: &mut SplitMix64) -> Weighed {
        let Campaign { capacities, hours, server_bit_per_s } = measure(scene, rng);
        let played = play(scene, scene.even_weights(), ROUNDS, |scene, weights| {
            reduced(scene, &capacities, &weights, rng)
        });
        Weighed { hours, server_bit_per_s, ..Weighed::new(played, CapacityValues::Provided) }
    }
}

/// The measured capacities, reduced by the reports of relays with these weights.
fn reduced(scene: &Scene, capacities: &[f64], weights: &[f64], rng: &mut SplitMix64) -> Vec<f64> {
    let mut available = |place: usize| {
        let used = scene.carried(place, scene.flows(weights[place], rng));
        let available = 1.0 - used / scene.relays[place].capacity;
        if scene.behavior_of(place).claims_idle { 1.0 } else { available }
    };
    let available: Vec<f64> = (0..capacities.len()).map(&mut available).collect();
    let mean = available.iter().sum::<f64>() / available.len().max(1) as f64;
    let factors = available.iter().map(|share| (share / mean.max(1e-9)).clamp(REDUCED_MIN, 1.0));
    let mut reduced: Vec<f64> =
        capacities.iter().zip(factors).map(|(capacity, factor)| capacity * factor).collect();
    normalise(&mut reduced);
    reduced
}

#[cfg(test)]
mod tests {
    use super::super::SceneOptions;
    use super::*;

    #[test]
    fn weights_are_between_half_of_the_capacity_and_the_capacity() {
        let scene = Scene::draw(&SceneOptions::with_attack("none", 1));
        let capacities = scene.capacities();
        let even = scene.even_weights();
        let weights = reduced(&scene, &capacities, &even, &mut SplitMix64::new(1));
        let ratios: Vec<f64> = weights.iter().zip(&even).map(|(one, other)| one / other).collect();
        let (least, most) = ratios
            .iter()
            .fold((f64::MAX, 0.0f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
        assert!(least / most >= REDUCED_MIN - 1e-9, "{least} to {most}");
        assert!(least / most < 0.9, "busy relays get less: {least} to {most}");
    }

    #[test]
    fn a_relay_that_claims_to_be_idle_gains_at_most_what_others_lose() {
        let weighed = |attack: &str| {
            let scene = Scene::draw(&SceneOptions::with_attack(attack, 1));
            FlashFlowDynamic.weigh(&scene, &mut SplitMix64::new(1)).advantage(&scene)
        };
        let idle = weighed("idle-claims");
        assert!((1.0..=1.0 / REDUCED_MIN).contains(&idle), "{idle}");
        assert!(weighed("idle-client-claims") <= 1.41 / REDUCED_MIN);
    }
}
