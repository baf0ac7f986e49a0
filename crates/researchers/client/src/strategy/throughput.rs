use super::latency::neighbours;
use super::{Position, Strategy, blend};
use crate::model::Model;
use crate::netdir::{NetDir, RelayInfo};
use std::sync::Arc;

/// Selects relays by throughput, according to a [`Model`] (Panchenko et al., §V-B): a middle by the slower of its
/// links to both neighbours, other positions by the relay's fastest link. Unknown values count as
/// the median.
#[derive(Clone, Debug)]
pub struct Throughput {
    model: Arc<Model>,
    influence: f64,
}

impl Throughput {
    /// Uses this model. The influence is that of the index, 0 (uniform) to 1.
    #[must_use]
    pub const fn new(model: Arc<Model>, influence: f64) -> Self {
        Self { model, influence }
    }
}

impl Strategy for Throughput {
    fn name(&self) -> &'static str {
        "throughput"
    }

    fn weight(
        &self,
        _: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64 {
        let fingerprint = &relay.fingerprint;
        let index = match neighbours(position, chosen) {
            Some([before, after]) => self.model.throughput_index(&[
                (before.fingerprint, *fingerprint),
                (*fingerprint, after.fingerprint),
            ]),
            None => self.model.node_throughput_index(fingerprint),
        };
        blend(index, self.influence)
    }
}
