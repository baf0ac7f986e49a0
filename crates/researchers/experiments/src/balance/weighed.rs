//! The errors of balancers' weights.

use crate::location::Distances;
use serde::{Deserialize, Serialize};
use tornet::balance::Weighing;
use tornet::errors::{
    group_weight_error, network_capacity_error, network_weight_error, relay_capacity_error,
    relay_weight_errors,
};
use tornet::network::Network;

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
            far: Distances::new(network, &capacities).and_then(|distances| {
                group_weight_error(&weights, &capacities, &distances.are_far)
            }),
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
