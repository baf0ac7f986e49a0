//! The errors of balancers' weights.

use serde::{Deserialize, Serialize};
use tornet::balance::{SCANNER_COUNTRY, Weighing};
use tornet::errors::{
    group_weight_error, network_capacity_error, network_weight_error, relay_capacity_error,
    relay_weight_errors,
};
use tornet::network::Network;
use tornet::places::Places;

/// A balancer's stored weights.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Weighed {
    pub(super) conditions: String,
    pub(super) weighing: Weighing,
}

/// The errors of a balancer's weights with one seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Errors {
    pub(super) balancer: String,
    pub(super) seed: u64,
    /// The network weight error.
    pub(super) nwe: Option<f64>,
    /// The network capacity error, if the balancer estimates capacities.
    pub(super) nce: Option<f64>,
    /// The share of the weight of the relays far from TorFlow's scanner, over their share of the capacity.
    pub(super) far: Option<f64>,
    /// The relay capacity errors of the relays with an estimate.
    pub(super) rce: Vec<f64>,
    /// The decimal logarithms of the relay weight errors of the relays with a weight.
    pub(super) log_rwe: Vec<f64>,
    pub(super) not_measured: usize,
    pub(super) simulated_s: f64,
}

impl Errors {
    #[expect(clippy::cast_precision_loss, reason = "weights and rates are far below 2⁵³")]
    pub(super) fn new(weighing: &Weighing, network: &Network, seed: u64) -> Self {
        let capacities = network.capacities();
        let weights: Vec<f64> = weighing.weights.iter().map(|weight| *weight as f64).collect();
        let known = weighing.estimates_bit_per_s.as_deref().unwrap_or_default();
        // A relay without an estimate counts as zero capacity.
        let estimates: Vec<f64> =
            known.iter().map(|estimate| estimate.unwrap_or(0) as f64).collect();
        let rce = known.iter().zip(&capacities).filter_map(|(estimate, capacity)| {
            relay_capacity_error((*estimate)? as f64, *capacity)
        });
        let rwe = relay_weight_errors(&weights, &capacities).into_iter().flatten();
        Self {
            balancer: weighing.balancer.clone(),
            seed,
            nwe: network_weight_error(&weights, &capacities),
            nce: (!known.is_empty())
                .then(|| network_capacity_error(&estimates, &capacities))
                .flatten(),
            far: far_from_scanner(network, &capacities)
                .and_then(|is_far| group_weight_error(&weights, &capacities, &is_far)),
            rce: rce.collect(),
            log_rwe: rwe.filter(|rwe| *rwe > 0.0).map(f64::log10).collect(),
            not_measured: weighing.not_measured,
            simulated_s: weighing.simulated_s,
        }
    }

    /// The share of relays with less weight than their share of capacity; `None` without relays.
    #[expect(clippy::cast_precision_loss, reason = "numbers of relays")]
    pub(super) fn under_weighted(&self) -> Option<f64> {
        let under = self.log_rwe.iter().filter(|log| **log < 0.0).count();
        (!self.log_rwe.is_empty()).then(|| under as f64 / self.log_rwe.len() as f64)
    }
}

/// The relays that are farther from TorFlow's scanner than those with the near half of the capacity; `None` if a relay's
/// country is unknown.
fn far_from_scanner(network: &Network, capacities: &[f64]) -> Option<Vec<bool>> {
    let places = Places::new().ok()?;
    let scanner = places.find(SCANNER_COUNTRY).ok()?;
    let latency = |country: &str| Some(scanner.latency_to(&places.find(country).ok()?));
    let latencies: Vec<_> =
        network.relays.iter().map(|relay| latency(&relay.site.country)).collect::<Option<_>>()?;
    let mut nearest: Vec<_> = latencies.iter().copied().zip(capacities.iter().copied()).collect();
    nearest.sort_by_key(|(latency, _)| *latency);
    let half = capacities.iter().sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let border = nearest.iter().find(|(_, capacity)| {
        sum += capacity;
        sum >= half
    });
    let border = border?.0;
    Some(latencies.iter().map(|latency| *latency > border).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;
    use tornet::network::{Relay, Site};

    fn relay(country: &str, mbit: f64) -> Relay {
        let site = Site::new(country, country, Rate::from_mbit_per_s(mbit));
        Relay { site, weight: 1, is_guard: true, is_exit: false, limit: None }
    }

    #[test]
    fn weights_by_speed_of_downloads_give_far_relays_less_than_their_share() {
        let relays =
            vec![relay("US", 30.0), relay("CA", 20.0), relay("JP", 30.0), relay("DE", 20.0)];
        let network = Network { relays, ..Network::default() };
        let weighed = |weights: [u64; 4]| {
            Errors::new(&Weighing { weights: weights.into(), ..Weighing::default() }, &network, 1)
                .far
        };
        let share = weighed([30, 20, 30, 20]).expect("countries are known");
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        let share = weighed([45, 30, 15, 10]).expect("countries are known");
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        let unknown = Network { relays: vec![relay("", 30.0)], ..Network::default() };
        assert_eq!(far_from_scanner(&unknown, &[1.0]), None);
    }
}
