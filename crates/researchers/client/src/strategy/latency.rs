use super::{Position, Strategy, blend};
use crate::model::Model;
use crate::netdir::{NetDir, RelayInfo};
use std::sync::Arc;

/// Selects relays by latency, according to a [`Model`] (Panchenko et al., §V-A): a middle by the RTTs of its links
/// to both neighbours, a first hop by its RTT from the client if known, other positions by the mean
/// of the relay's links. Unknown values count as the median.
#[derive(Clone, Debug)]
pub struct Latency {
    model: Arc<Model>,
    influence: f64,
}

impl Latency {
    /// Uses this model. The influence is that of the index, 0 (uniform) to 1.
    #[must_use]
    pub const fn new(model: Arc<Model>, influence: f64) -> Self {
        Self { model, influence }
    }
}

impl Strategy for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn weight(
        &self,
        _: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64 {
        let fingerprint = &relay.fingerprint;
        let index = match (position, neighbours(position, chosen)) {
            (Position::Guard, _) => self.model.entry_index(fingerprint),
            (_, Some([before, after])) => self.model.rtt_index(&[
                (before.fingerprint, *fingerprint),
                (*fingerprint, after.fingerprint),
            ]),
            _ => self.model.node_rtt_index(fingerprint),
        };
        blend(index, self.influence)
    }
}

/// The relays before and after a middle, if both are known.
pub(super) fn neighbours<'a>(
    position: Position,
    chosen: &[&'a RelayInfo],
) -> Option<[&'a RelayInfo; 2]> {
    match (position, chosen) {
        (Position::Middle, [first, exit]) => Some([first, exit]),
        (Position::Middle, [_, exit, .., last]) => Some([last, exit]),
        _ => None,
    }
}
