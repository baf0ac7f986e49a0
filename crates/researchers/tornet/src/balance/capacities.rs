use super::{Balancer, Conditions, Weighing, kilobytes};
use crate::error::Error;
use crate::network::Network;

/// The ideal: a relay's weight is its true capacity. Only a simulator knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacities;

impl Balancer for Capacities {
    fn name(&self) -> &'static str {
        "ideal"
    }

    fn weigh(&self, network: &Network, _: &Conditions<'_>) -> Result<Weighing, Error> {
        let rates = network.relays.iter().map(|relay| relay.capacity().as_bit_per_s());
        let rates: Vec<u64> = rates.collect();
        Ok(Weighing {
            balancer: self.name().into(),
            weights: rates.iter().copied().map(kilobytes).collect(),
            estimates_bit_per_s: Some(rates.into_iter().map(Some).collect()),
            ..Weighing::default()
        })
    }
}
