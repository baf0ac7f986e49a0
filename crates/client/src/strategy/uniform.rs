use super::{Position, Strategy};
use crate::view::{RelayInfo, View};

/// All relays are equal: the most anonymity that a choice can give, at the price of speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform;

impl Strategy for Uniform {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn weight(&self, _: &View, _: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        1.0
    }
}
