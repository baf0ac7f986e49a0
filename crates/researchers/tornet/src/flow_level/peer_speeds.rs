//! What relays observe of each other: the rate of single flows between them.

use super::Scene;
use super::draws::noise;
use sim::world::SplitMix64;

/// The weight of a new observation in a relay's average.
const EWMA: f64 = 0.25;

/// Rounds after which averages are published. Weights change in each.
const ROUNDS: u32 = 10;

/// The rate that each relay has observed with each other one; zero for those that it has not met.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PeerSpeeds {
    relays: usize,
    rates: Vec<f64>,
}

impl PeerSpeeds {
    /// The averages after some rounds with the weights that `weigh` computes.
    pub(super) fn observe(
        scene: &Scene,
        rng: &mut SplitMix64,
        weigh: impl Fn(&Self) -> Vec<f64>,
    ) -> Self {
        let relays = scene.relays.len();
        let mut this = Self { relays, rates: vec![0.0; relays * relays] };
        let mut weights = scene.even_weights();
        for round in 0..ROUNDS {
            let mut rate = |place: usize| {
                let flows = scene.flows(weights[place], rng);
                scene.rate_of_one_more(place, flows)
            };
            let rates: Vec<f64> = (0..relays).map(&mut rate).collect();
            for one in 0..relays {
                for other in 0..one {
                    let seen = rates[one].min(rates[other]) * noise(rng);
                    let kept = this.get(one, other);
                    let mean = if round == 0 { seen } else { kept + EWMA * (seen - kept) };
                    this.set(one, other, mean);
                    this.set(other, one, mean);
                }
            }
            weights = weigh(&this);
        }
        this
    }

    pub(super) const fn relays(&self) -> usize {
        self.relays
    }

    pub(super) fn get(&self, observer: usize, observed: usize) -> f64 {
        self.rates[observer * self.relays + observed]
    }

    pub(super) fn set(&mut self, observer: usize, observed: usize, rate: f64) {
        self.rates[observer * self.relays + observed] = rate;
    }

    /// All observations of a relay.
    pub(super) fn row(&self, observer: usize) -> &[f64] {
        &self.rates[observer * self.relays..][..self.relays]
    }

    pub(super) fn row_mut(&mut self, observer: usize) -> &mut [f64] {
        &mut self.rates[observer * self.relays..][..self.relays]
    }

    /// The relays of the adversary carry nothing of others, and so nobody else has observed them.
    pub(super) fn separate(&mut self, adversaries: &[usize]) {
        let mut is_adversary = vec![false; self.relays];
        adversaries.iter().for_each(|place| is_adversary[*place] = true);
        for one in 0..self.relays {
            for other in 0..self.relays {
                if is_adversary[one] != is_adversary[other] {
                    self.set(one, other, 0.0);
                }
            }
        }
    }
}
