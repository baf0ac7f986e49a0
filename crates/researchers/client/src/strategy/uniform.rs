use super::{Position, Strategy};
use crate::netdir::{NetDir, RelayInfo};

/// Uniformly: the most anonymity, at the price of speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform;

impl Strategy for Uniform {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn weight(&self, _: &NetDir, _: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        1.0
    }
}
