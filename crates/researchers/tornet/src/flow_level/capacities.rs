//! Weights in proportion to true capacities, which nobody knows: a bound for all balancers.

use super::{CapacityValues, FlowBalancer, Played, Scene, Weighed};
use sim::world::SplitMix64;

/// The relays' true capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueCapacities;

impl FlowBalancer for TrueCapacities {
    fn name(&self) -> &'static str {
        "true-capacities"
    }

    fn attacks(&self) -> &'static [&'static str] {
        &["none"]
    }

    fn depends_on_load(&self) -> bool {
        false
    }

    fn weigh(&self, scene: &Scene, _: &mut SplitMix64) -> Weighed {
        Weighed::new(Played::once(scene.even_weights()), CapacityValues::Provided)
    }
}
